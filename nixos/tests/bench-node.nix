# A bench node boots, and the driver reaches it and finds it on its fabric.
{ desk, ... }:
{
  nodes = {
    inherit desk;
    node1 = { };
    node2 = { };
  };

  testScript = ''
    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")

    with subtest("the driver reaches the nodes and finds them on their fabric"):
        found = desk.succeed("nixwulf cluster check /etc/cluster.toml")
        t.assertIn("All 2 nodes answer and are on their fabrics.", found)

    with subtest("the driver runs a command on every node"):
        names = desk.succeed("nixwulf nodes exec --cluster /etc/cluster.toml -- uname -n")
        t.assertEqual(sorted(names.splitlines()), ["node1: node1", "node2: node2"])

    with subtest("no password opens a node"):
        offered = desk.fail(
            "ssh -v -o PubkeyAuthentication=no -o BatchMode=yes root@node1 true 2>&1"
        )
        t.assertNotIn("password", offered.rpartition("Authentications that can continue")[2])

    with subtest("a node with another MTU than its fabric's is refused with the reason"):
        node2.succeed("ip link set eth1 mtu 1400")
        status, words = desk.execute("nixwulf cluster check /etc/cluster.toml 2>&1")
        t.assertEqual(status, 3)
        t.assertIn("Node 'node2' has MTU 1400 on 'eth1'", words)
  '';
}
