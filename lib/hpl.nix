# How large a problem HPL gets and on which grid, from the memory of the smallest node and one number of ranks.
{ lib }:
rec {
  # The largest integer whose square is not above x, by Newton's method: Nix has no square root. No square is
  # taken, since Nix refuses integers of more than 64 bits.
  isqrt =
    x:
    let
      step = guess: if guess <= x / guess then guess else step ((guess + x / guess) / 2);
    in
    if x <= 0 then 0 else step x;

  # The order of the matrix of doubles that fills `fraction` of all nodes' memory, and 0.9 of that order for
  # the rest of the system: floor(sqrt(bytes * fraction / 8) * 0.9), as top500-benchmark has it, in multiples of nb.
  problemSize =
    {
      memoryGiB,
      nodes,
      fraction,
      nb,
    }:
    let
      bytes = memoryGiB * nodes * 1073741824;
      n = isqrt (builtins.floor (bytes * fraction / 8 * 0.81));
    in
    n - lib.mod n nb;

  # p * q = ranks with p <= q and both as near as they can be: HPL communicates least on a square.
  grid =
    ranks:
    let
      p = lib.findFirst (candidate: lib.mod ranks candidate == 0) 1 (
        lib.reverseList (lib.range 1 (isqrt ranks))
      );
    in
    {
      inherit p;
      q = ranks / p;
    };

  # HPL reads the file by position; what stands behind a value is for the reader.
  dat =
    {
      n,
      nb,
      p,
      q,
    }:
    ''
      HPLinpack benchmark input file
      made by Nixwulf
      HPL.out      output file name (if any)
      6            device out (6=stdout,7=stderr,file)
      1            # of problems sizes (N)
      ${toString n} Ns
      1            # of NBs
      ${toString nb} NBs
      0            PMAP process mapping (0=Row-,1=Column-major)
      1            # of process grids (P x Q)
      ${toString p} Ps
      ${toString q} Qs
      16.0         threshold
      1            # of panel fact
      2            PFACTs (0=left, 1=Crout, 2=Right)
      1            # of recursive stopping criterium
      4            NBMINs (>= 1)
      1            # of panels in recursion
      2            NDIVs
      1            # of recursive panel fact.
      1            RFACTs (0=left, 1=Crout, 2=Right)
      1            # of broadcast
      1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
      1            # of lookahead depth
      1            DEPTHs (>=0)
      2            SWAP (0=bin-exch,1=long,2=mix)
      64           swapping threshold
      0            L1 in (0=transposed,1=no-transposed) form
      0            U  in (0=transposed,1=no-transposed) form
      1            Equilibration (0=no,1=yes)
      8            memory alignment in double (> 0)
    '';
}
