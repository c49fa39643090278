# distributed-llama's worker as a service: the other nodes of its fabric reach it, and nobody else does.
{ desk, ... }:
let
  worker = {
    virtualisation.vlans = [
      1
      2
    ];
    nixwulf.distributed-llama = {
      enable = true;
      fabric = "switch";
      nThreads = 1;
    };
  };
in
{
  nodes = {
    desk = {
      imports = [ desk ];
      virtualisation.vlans = [
        1
        2
      ];
    };
    node1 = worker;
    node2 = worker;
  };

  testScript =
    { nodes, ... }:
    let
      address = name: nodes.${name}.nixwulf.fabrics.switch.address;
    in
    ''
      NODE1, NODE2 = "${address "node1"}", "${address "node2"}"

      LISTENING = "ss -Hltn 'sport = 9999' | awk '{ print $4 }'"


      def has_worker(machine: BaseMachine, address: str) -> None:
          """Waits without a connection: a worker ends with each that ends, and is started again."""
          machine.wait_until_succeeds(f"{LISTENING} | grep -x {address}:9999", timeout=limit(60))


      start_all()
      for machine in machines:
          machine.wait_for_unit("multi-user.target")
      for machine, address in [(node1, NODE1), (node2, NODE2)]:
          has_worker(machine, address)

      with subtest("the worker listens on the fabric's address only"):
          listening = node1.succeed(LISTENING)
          t.assertEqual(listening.split(), [f"{NODE1}:9999"])

      with subtest("the worker is nobody, and may not write or open devices"):
          shown = node1.succeed(
              "systemctl show distributed-llama --property DynamicUser,ProtectSystem,DevicePolicy"
          )
          t.assertEqual(
              sorted(shown.split()),
              ["DevicePolicy=closed", "DynamicUser=yes", "ProtectSystem=strict"],
          )

      with subtest("the cluster's nodes reach the port on the fabric, and nobody else does"):
          t.assertTrue(reaches(desk, NODE1, 22))
          t.assertFalse(reaches(desk, NODE1, 9999))
          t.assertTrue(reaches(node2, NODE1, 9999))

      with subtest("a root node that goes away leaves a worker for the next one"):
          has_worker(node1, NODE1)
          t.assertTrue(reaches(node2, NODE1, 9999))

      with subtest("the port is closed on another network of the nodes, and by IPv6"):
          node1.succeed("systemctl stop distributed-llama")
          node1.succeed("systemd-run --unit=everywhere iperf3 --server --port 9999")
          node1.wait_for_open_port(9999)
          t.assertTrue(reaches(node2, NODE1, 9999))
          for other in [
              address_of(node1, 4, "eth2", "global"),
              address_of(node1, 6, "eth1", "link") + "%eth1",
          ]:
              for machine in [node2, desk]:
                  t.assertTrue(reaches(machine, other, 22), other)
                  t.assertFalse(reaches(machine, other, 9999), other)
    '';
}
