# A node of each platform boots from a disk that disko made, by its firmware, boot loader and own initrd, and is then what
# its modules say: to itself, to the cluster's user, to the cluster's other nodes and to strangers.
platform:
{
  desk,
  installed,
  knocks,
  ...
}:
let
  # The cluster's other node. It is the desk, wherever that takes this address for its own.
  peer = "192.168.1.200";
in
{
  nodes = {
    # On the node's fabric, and none of the cluster's nodes.
    desk.imports = [
      desk
      knocks
    ];
    node1 = installed {
      inherit platform;
      modules = [
        knocks
        {
          # A card that QEMU has not would bring it.
          nixwulf.rdma.enable = true;
          nixwulf.cluster.nodes = [
            {
              name = "node2";
              addresses.switch = peer;
            }
          ];
        }
      ];
    };
  };

  testScript =
    { nodes, ... }:
    ''
      node1.start()
      install(node1)
      desk.start()

      with subtest("the firmware starts the boot loader, and that the system from the NVMe drive"):
          boot_from_disk(node1)
          node1.wait_for_unit("multi-user.target", timeout=limit(60))
          node1.succeed("test -d /sys/firmware/efi")
          loader = node1.succeed("bootctl status --no-pager")
          t.assertRegex(loader, r"Product: systemd-boot")
          for mount in ["/", "/boot"]:
              # Nothing waits for /boot.
              node1.wait_until_succeeds(f"findmnt -no SOURCE {mount} | grep ^/dev/nvme0n1p", timeout=limit(10))
          t.assertIn("root=fstab", node1.succeed("cat /proc/cmdline"))

      with subtest("no unit has failed and none waits for its next restart"):
          t.assertEqual(node1.execute("systemctl is-system-running --wait")[1].strip(), "running")
          units = json.loads(node1.succeed("systemctl list-units --all --output json"))
          t.assertEqual([unit for unit in units if unit["active"] == "failed"], [])
          t.assertEqual([unit for unit in units if unit["sub"].startswith("auto-restart")], [])

      with subtest("the boot is marked as good, and a system that hangs is started anew"):
          node1.wait_until_succeeds("systemctl is-active systemd-bless-boot.service", timeout=limit(10))
          # A counter in the name would be what is left of its tries.
          t.assertRegex(node1.succeed("ls /boot/loader/entries"), r"^nixos-[0-9a-f]+\.conf\s*$")
          t.assertEqual(
              node1.succeed("systemctl show --property RuntimeWatchdogUSec --value").strip(), "30s"
          )

      with subtest("the network is online in less than 10 s"):
          # Without KVM the system is up long before udev has been through the machine's hardware.
          node1.succeed(f"udevadm settle --timeout={limit(30)}")
          node1.succeed("systemctl restart systemd-networkd", "systemctl start network-online.target")
          shown = node1.succeed(
              "systemctl show systemd-networkd-wait-online --property ExecMainStartTimestampMonotonic,"
              "ExecMainExitTimestampMonotonic,ExecMainStatus"
          )
          facts = dict(line.split("=") for line in shown.splitlines())
          t.assertEqual(facts["ExecMainStatus"], "0")
          took_us = int(facts["ExecMainExitTimestampMonotonic"]) - int(facts["ExecMainStartTimestampMonotonic"])
          # Not limit(10): where it waits in vain it does so for two minutes.
          t.assertLess(took_us, 10e6)

      with subtest("bench logs in by its key, locks memory without limit, starts a scope, and reads the kernel's log"):
          t.assertEqual(desk.succeed("ssh -n bench@node1 'ulimit -l'").strip(), "unlimited")
          scope = "systemd-run --user --scope --quiet --collect --unit=run1"
          inside = desk.succeed(f"ssh -n bench@node1 {scope} sh -c '\"ulimit -l; cat /proc/self/cgroup\"'")
          t.assertRegex(inside, r"^unlimited\n0::/user\.slice/.*/run1\.scope\n$")
          t.assertIn("Linux version", desk.succeed("ssh -n bench@node1 dmesg"))

      ipv4 = "${nodes.node1.nixwulf.fabrics.switch.address}"
      ipv6 = address_of(node1, 6, "ens16", "link") + "%eth1"

      with subtest("a stranger on the fabric reaches nothing but ssh, by IPv4 and by IPv6"):
          for address in [ipv4, ipv6]:
              t.assertEqual(let_in(node1, "ens16", desk, address), {"tcp": {22}, "udp": set()})
          for address in [ipv4, ipv6]:
              t.assertEqual(desk.succeed(f"ssh -n bench@{address} uname -n").strip(), "node1")

      with subtest("the cluster's other node reaches ssh and the engines' ports"):
          desk.succeed("ip address add ${peer}/24 dev eth1", f"ip route replace {ipv4} dev eth1 src ${peer}")
          t.assertEqual(
              let_in(node1, "ens16", desk, ipv4), {"tcp": {22} | ENGINES["tcp"], "udp": ENGINES["udp"]}
          )
    '';
}
