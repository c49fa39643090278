# Two fabrics in each node: a cable that goes and comes back, with its address and what is served on it, and names of both.
{ lib, ... }:
let
  machine =
    { config, ... }:
    {
      virtualisation.vlans = [
        1
        2
      ];
      nixwulf.fabrics.cable = {
        kind = "thunderbolt-net";
        interface = "eth2";
        address = (lib.head config.networking.interfaces.eth2.ipv4.addresses).address;
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 10;
      };
      nixwulf.llama-rpc.instances.cpu.fabric = "cable";
    };
in
{
  nodes = {
    node1 = machine;
    node2 = machine;
  };

  testScript =
    { nodes, ... }:
    let
      on = fabric: name: nodes.${name}.nixwulf.fabrics.${fabric}.address;
      switch = on "switch" "node1";
      cable = on "cable" "node1";
    in
    ''
      SWITCH, CABLE = "${switch}", "${cable}"
      UNIT = "llama-rpc-cpu.service"

      def addresses(interface: str) -> list[str]:
          return node1.succeed(
              f"ip -4 -o address show dev {interface} | awk '{{ print $4 }}'"
          ).split()

      def process() -> str:
          return node1.succeed(f"systemctl show --value --property MainPID {UNIT}").strip()

      start_all()
      for machine in machines:
          machine.wait_for_unit("multi-user.target")
      node1.wait_for_open_port(50052, CABLE)

      with subtest("the plain name is the LAN's address, and each fabric has a name of its own"):
          for name, address in [
              ("node1", SWITCH),
              ("node1-switch", SWITCH),
              ("node1-cable", CABLE),
          ]:
              for machine in machines:
                  answer = machine.succeed(f"getent ahostsv4 {name} | awk '{{ print $1 }}'")
                  t.assertEqual(set(answer.split()), {address}, name)
          node2.succeed("ping -c 1 node1-switch && ping -c 1 node1-cable")

      with subtest("the server is on the cable and nowhere else"):
          t.assertTrue(reaches(node2, CABLE, 50052))
          t.assertFalse(reaches(node2, SWITCH, 50052))

      with subtest("a cable without a carrier keeps its address and its server, for which RDMA's GIDs are"):
          before = process()
          node1.send_monitor_command("set_link vlan2 off")
          node1.wait_until_succeeds("ip -o link show dev eth2 | grep -q NO-CARRIER")
          t.assertFalse(reaches(node2, CABLE, 50052))
          t.assertEqual(addresses("eth2"), [f"{CABLE}/24"])
          node1.send_monitor_command("set_link vlan2 on")
          node1.wait_until_succeeds("ip -o link show dev eth2 | grep -q LOWER_UP")
          node2.wait_until_succeeds(f"ping -c 1 {CABLE}")
          t.assertTrue(reaches(node2, CABLE, 50052))
          t.assertEqual(process(), before)

      with subtest("an interface that is gone takes its server with it"):
          device = node1.succeed("basename $(readlink /sys/class/net/eth2/device)").strip()
          node1.succeed(f"echo {device} >/sys/bus/virtio/drivers/virtio_net/unbind")
          node1.wait_until_succeeds("test ! -e /sys/class/net/eth2")
          node1.wait_until_succeeds(f"systemctl show {UNIT} | grep -x ActiveState=inactive")
          t.assertTrue(node2.execute(f"ping -c 1 {SWITCH}")[0] == 0)

      with subtest("an interface that comes back has its address, and the server is there again"):
          node1.succeed(f"echo {device} >/sys/bus/virtio/drivers/virtio_net/bind")
          node1.wait_until_succeeds(f"ip -4 -o address show dev eth2 | grep -q {CABLE}/24")
          node2.wait_until_succeeds(f"ping -c 1 {CABLE}")
          node1.wait_for_open_port(50052, CABLE)
          t.assertTrue(reaches(node2, CABLE, 50052))
          t.assertNotEqual(process(), before)
    '';
}
