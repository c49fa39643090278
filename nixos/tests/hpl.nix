# HPL over MPI on two machines: the residual passes, and both take part.
{ desk, pkgs, ... }:
{
  nodes =
    let
      rank = {
        imports = [ desk ];
        nixwulf.hpl.enable = true;
        # MPI chooses its ports itself.
        networking.firewall.trustedInterfaces = [ "eth1" ];
      };
    in
    {
      node1 = rank;
      node2 = rank;
    };

  testScript = ''
    HPL_DAT = """HPLinpack benchmark input file
    A small problem
    HPL.out      output file name (if any)
    6            device out (6=stdout,7=stderr,file)
    1            # of problems sizes (N)
    1000         Ns
    1            # of NBs
    64           NBs
    0            PMAP process mapping (0=Row-,1=Column-major)
    1            # of process grids (P x Q)
    1            Ps
    2            Qs
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
    """

    start_all()
    for machine in [node1, node2]:
        machine.wait_for_unit("multi-user.target")
        machine.succeed(f"mkdir -p /tmp/hpl && cat >/tmp/hpl/HPL.dat <<'EOF'\n{HPL_DAT}\nEOF")
    node1.succeed("ssh root@node2 true && ssh root@node1 true")

    with subtest("xhpl runs on both machines and its residual passes"):
        printed = node1.succeed(
            "cd /tmp/hpl && mpirun --allow-run-as-root -np 2 --host node1:1,node2:1 "
            "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth1 xhpl"
        )
        t.assertIn("PASSED", printed)
        t.assertIn("1 tests completed and passed residual checks", printed)

    with subtest("the input file of the module suits the machines"):
        t.assertIn("Ns", node1.succeed("cat /etc/nixwulf/HPL.dat"))
  '';
}
