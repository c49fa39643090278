# HPL over MPI on two machines, with the input file that the module makes: its residual passes.
{ desk, ... }:
let
  # Each can be the head: mpirun reaches the other by the desk's key.
  rank = {
    imports = [ desk ];
    nixwulf.hpl = {
      enable = true;
      fabric = "switch";
      nodes = 2;
      # A matrix of order 1,600, which takes a second.
      memoryGiB = 0.25;
      fraction = 0.05;
      nb = 64;
    };
  };
in
{
  nodes = {
    node1 = rank;
    node2 = rank;
  };

  testScript = ''
    start_all()
    for machine in [node1, node2]:
        machine.wait_for_unit("multi-user.target")
        machine.succeed("mkdir /tmp/hpl && cp /etc/nixwulf/HPL.dat /tmp/hpl")
    node1.succeed("ssh root@node2 true && ssh root@node1 true")

    with subtest("xhpl runs on a grid of both machines and its residual passes"):
        printed = node1.succeed(
            "cd /tmp/hpl && mpirun --allow-run-as-root -np 2 --host node1:1,node2:1 "
            "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth1 xhpl"
        )
        t.assertRegex(printed, r"WR\S+ +1600 +64 +1 +2 ")
        t.assertIn("1 tests completed and passed residual checks", printed)
  '';
}
