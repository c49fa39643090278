# RDMA over Soft-RoCE: a device on an ordinary interface, memlock without limit, and perftest across it.
{ lib, ... }:
{
  nodes =
    let
      machine = {
        nixwulf.fabrics.switch = {
          kind = lib.mkForce "roce";
          rdmaDevice = "rxe0";
          gidIndex = 1;
        };
        boot.kernelModules = [ "rdma_rxe" ];
      };
    in
    {
      node1 = machine;
      node2 = machine;
    };

  testScript =
    { nodes, ... }:
    ''
      start_all()
      for machine in [node1, node2]:
          machine.wait_for_unit("multi-user.target")
          machine.wait_until_succeeds("ip -4 address show dev eth1 | grep -q inet")
          machine.succeed("rdma link add rxe0 type rxe netdev eth1")
          machine.wait_until_succeeds("ibv_devinfo -d rxe0 | grep PORT_ACTIVE")

      with subtest("logins and units may lock memory without limit"):
          t.assertEqual(node1.succeed("su - root -c 'ulimit -l'").strip(), "unlimited")
          t.assertEqual(node1.succeed("systemd-run --pipe --wait -q sh -c 'ulimit -l'").strip(), "unlimited")

      with subtest("perftest crosses the device"):
          node1.succeed("systemd-run --unit=server ib_write_bw -d rxe0 -x 1 -F -n 20 -s 4096")
          printed = node2.wait_until_succeeds(
              "ib_write_bw -d rxe0 -x 1 -F -n 20 -s 4096 ${nodes.node1.nixwulf.fabrics.switch.address}", timeout=60
          )
          t.assertIn("BW average", printed)
          counters = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
          t.assertGreater(int(node2.succeed(f"cat {counters}")), 0)
    '';
}
