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
          machine.wait_for_unit("llama-rpc-cpu.service")

      with subtest("the server listens on the fabric's address only"):
          t.assertIn("${address "node1"}:50052", node1.succeed("ss -Hltn 'sport = 50052'"))
          t.assertNotIn("0.0.0.0", node1.succeed("ss -Hltn 'sport = 50052' | awk '{ print $4 }'"))

      with subtest("the firewall opens the port on the fabric, and nowhere else"):
          desk.wait_until_succeeds("timeout 5 bash -c '</dev/tcp/${address "node1"}/50052'")
          node1.succeed("systemctl stop llama-rpc-cpu")
          node1.succeed("systemd-run --unit=everywhere iperf3 --server --port 50052")
          node1.wait_for_open_port(50052)
          other = node1.succeed("ip -4 -o address show dev eth2 | awk '{ print $4 }'").split("/")[0]
          desk.fail(f"timeout 5 bash -c '</dev/tcp/{other}/50052'")
          desk.succeed("timeout 5 bash -c '</dev/tcp/${address "node1"}/50052'")
    '';
}
