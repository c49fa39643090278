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

  # The input file of one problem; the driver fills the same template.
  dat =
    {
      n,
      nb,
      p,
      q,
    }:
    builtins.replaceStrings [ "{problems}" "{n}" "{nb}" "{p}" "{q}" ] (map toString [
      1
      n
      nb
      p
      q
    ]) (builtins.readFile ../driver/nixwulf/data/HPL.dat);
}
