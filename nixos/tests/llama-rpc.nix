# llama.cpp's RPC servers as services: reached across the fabric, refused from everywhere else.
{ desk, ... }:
let
  worker = {
    virtualisation.vlans = [
      1
      2
    ];
    nixwulf.llama-rpc.instances.cpu = {
      fabric = "switch";
      port = 50052;
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
      start_all()
      desk.wait_for_unit("multi-user.target")
      for machine in [node1, node2]:
          machine.wait_for_unit("multi-user.target")

      with subtest("the server was started by the interface, which was up in the initrd"):
          for machine in [node1, node2]:
              machine.wait_until_succeeds("systemctl is-active llama-rpc-cpu.service", timeout=60)

      with subtest("the server listens on the fabric's address only"):
          listening = node1.succeed("ss -Hltn 'sport = 50052' | awk '{ print $4 }'")
          t.assertEqual(listening.split(), ["${address "node1"}:50052"])

      with subtest("the cluster's nodes reach the port on the fabric, and nobody else does"):
          t.assertTrue(reaches(node2, "${address "node1"}", 50052))
          t.assertTrue(reaches(desk, "${address "node1"}", 22))
          t.assertFalse(reaches(desk, "${address "node1"}", 50052))

      with subtest("where the firewall is off the unit still takes packets of the nodes only"):
          node1.succeed("systemctl stop firewall")
          t.assertTrue(reaches(node2, "${address "node1"}", 50052))
          t.assertFalse(reaches(desk, "${address "node1"}", 50052))
          node1.succeed("systemctl start firewall")

      with subtest("the port is closed on another network of the nodes, and by IPv6"):
          node1.succeed("systemctl stop llama-rpc-cpu")
          node1.succeed("systemd-run --unit=everywhere iperf3 --server --port 50052")
          node1.wait_for_open_port(50052)
          t.assertTrue(reaches(node2, "${address "node1"}", 50052))
          for other in [
              address_of(node1, 4, "eth2", "global"),
              address_of(node1, 6, "eth1", "link") + "%eth1",
          ]:
              t.assertTrue(reaches(node2, other, 22), other)
              t.assertFalse(reaches(node2, other, 50052), other)
    '';
}
