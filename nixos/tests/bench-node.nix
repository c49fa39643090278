# A bench node boots, is what its modules say to strangers, peers and users, and is so again after a reboot.
{
  desk,
  lib,
  nixosSystem,
  nixwulf,
  pkgs,
  ...
}:
let
  ports = import ../../lib/ports.nix { inherit lib; };
  opened = {
    tcp = map (port: [ port port ]) (lib.attrValues ports.tcp) ++ map (range: [ range.from range.to ]) (lib.attrValues ports.ranges);
    udp = map (port: [ port port ]) (lib.attrValues ports.udp);
  };

  knocks =
    { pkgs, ... }:
    {
      environment.systemPackages = [
        (pkgs.writeScriptBin "knock" "#!${pkgs.python3}/bin/python3\n${lib.readFile ./knock.py}")
      ];
    };
  node =
    { pkgs, ... }:
    {
      imports = [ knocks ];
      environment.systemPackages = [ pkgs.nftables ];
    };

  # A node with all services of the modules. Their programs are not needed to judge what the units allow.
  serving =
    (nixosSystem {
      modules = lib.attrValues nixwulf.nixosModules ++ [
        ../platforms/generic-x86_64
        {
          nixpkgs.pkgs = pkgs;
          networking.hostName = "serving";
          nixwulf = {
            cluster.sshKeys = [ "ssh-ed25519 AAAA none" ];
            fabrics.cable = {
              kind = "infiniband";
              interface = "ib0";
              address = "10.0.0.1";
              prefixLength = 24;
              mtu = 2044;
              speedGbps = 40;
              rdmaDevice = "mlx4_0";
              gidIndex = 0;
            };
            llama-rpc.instances = lib.genAttrs [ "cpu" "vulkan" "rocm" ] (backend: {
              inherit backend;
              fabric = "cable";
            });
            distributed-llama = {
              enable = true;
              fabric = "cable";
              gpuIndex = 0;
            };
            exo = {
              enable = true;
              fabric = "cable";
            };
            vllm = {
              enable = true;
              fabric = "cable";
              model = "/models/none";
              addresses = [ "10.0.0.1" ];
              package = pkgs.writeShellScriptBin "vllm" "";
            };
            power-meter.enable = true;
          };
        }
      ];
    }).config.systemd.units;
  services = lib.genAttrs' [
    "distributed-llama"
    "exo"
    "llama-rpc-cpu"
    "llama-rpc-rocm"
    "llama-rpc-vulkan"
    "opensm"
    "power-meter"
    "vllm"
  ] (name: lib.nameValuePair "service-units/${name}.service" {
    text = lib.unsafeDiscardStringContext serving."${name}.service".text;
  });
in
{
  nodes = {
    # It is on the nodes' fabric and none of the cluster's nodes: a stranger.
    desk = {
      imports = [
        desk
        knocks
      ];
      environment.etc = services;
    };
    node1 = node;
    node2 = node;
  };

  testScript =
    { nodes, ... }:
    ''
      import json

      EVERY = set(range(1, 65536))
      # First and last.
      OPENED: dict[str, list[list[int]]] = ${builtins.toJSON opened}

      # The firewall of NixOS has priority 0: what arrives is counted before it, what it lets in is counted behind it.
      SEEN = """
      table inet seen {
        set arrived_tcp { type inet_service; flags dynamic; size 65536; }
        set arrived_udp { type inet_service; flags dynamic; size 65536; }
        set passed_tcp { type inet_service; flags dynamic; size 65536; }
        set passed_udp { type inet_service; flags dynamic; size 65536; }
        chain before_firewall {
          type filter hook prerouting priority raw;
          iifname eth1 tcp flags & (syn | ack) == syn add @arrived_tcp { tcp dport }
          iifname eth1 meta l4proto udp add @arrived_udp { udp dport }
        }
        chain behind_firewall {
          type filter hook input priority 100;
          iifname eth1 tcp flags & (syn | ack) == syn add @passed_tcp { tcp dport }
          iifname eth1 meta l4proto udp add @passed_udp { udp dport }
        }
      }
      """

      def seen(name: str) -> set[int]:
          listed = json.loads(node1.succeed(f"nft --json list set inet seen {name}"))["nftables"]
          return {port for entry in listed for port in entry.get("set", {}).get("elem", [])}

      def let_in(sender: BaseMachine, address: str) -> dict[str, set[int]]:
          """The ports of node1 that a sender reaches, whether anything listens there or not, of all that there are."""
          node1.succeed(f"nft destroy table inet seen; nft -f - <<'EOF'\n{SEEN}\nEOF")
          for protocol in ("tcp", "udp"):
              ports = "1-65535"
              for _ in range(20):
                  sender.succeed(f"knock {protocol} {address} {ports}", timeout=limit(60))
                  lost = sorted(EVERY - seen(f"arrived_{protocol}"))
                  if not lost:
                      break
                  ports = " ".join(map(str, lost[:5000]))
              t.assertEqual(EVERY, seen(f"arrived_{protocol}"))
          return {protocol: seen(f"passed_{protocol}") for protocol in ("tcp", "udp")}

      def opened(protocol: str) -> set[int]:
          return {port for first, last in OPENED[protocol] for port in range(first, last + 1)}

      def firewall() -> str:
          return node1.succeed("iptables -S; ip6tables -S")

      def is_well(machine: BaseMachine) -> None:
          t.assertEqual(machine.succeed("systemctl is-system-running --wait").strip(), "running")
          t.assertEqual(machine.succeed("systemctl list-units --state=auto-restart,auto-restart-queued --no-legend"), "")

      node1.start(allow_reboot=True)
      start_all()
      for machine in machines:
          machine.wait_for_unit("multi-user.target", timeout=limit(60))
      for machine in [node1, node2]:
          is_well(machine)
      rules = firewall()
      ipv4 = "${nodes.node1.networking.primaryIPAddress}"
      ipv6 = address_of(node1, 6, "eth1", "link") + "%eth1"
      # NixOS lets in answers to DHCPv6 by link-local addresses; nothing of a node's asks.
      DHCPV6_CLIENT = 546

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

      with subtest("user bench logs in by key, locks memory without limit, reads the kernel's log and has a manager"):
          desk.succeed("sed 's/root@/bench@/' /etc/cluster.toml >/tmp/bench.toml")
          t.assertEqual(desk.succeed("ssh bench@node1 'id -un; ulimit -l'").split(), ["bench", "unlimited"])
          t.assertIn("Linux version", desk.succeed("ssh bench@node1 dmesg"))
          t.assertEqual(desk.succeed("ssh bench@node1 systemctl --user is-system-running").strip(), "running")

      with subtest("what the driver starts as bench is in a scope of its own"):
          desk.succeed(
              "cat >/tmp/scope.yaml <<'EOF'\n"
              "name: scope\n"
              "matrix: {benchmark: [iperf3], nodes: [2], fabric: [switch], parameters: {seconds: [10]}}\n"
              "samples: 1\n"
              f"limits: {{wall_s: {limit(60)}, progress_s: {limit(30)}}}\n"
              "EOF"
          )
          desk.succeed(
              "(cd /tmp; nixwulf bench scope.yaml --cluster bench.toml --out scope && echo 0 >done || echo $? >done)"
              " >/tmp/log 2>&1 &"
          )
          cgroup = node2.wait_until_succeeds("cat /proc/$(pgrep -x iperf3)/cgroup", timeout=limit(60))
          t.assertRegex(cgroup, r"/user@\d+\.service/app\.slice/nixwulf-\w+-r0-iperf3-\S+\.scope")
          t.assertEqual(desk.wait_until_succeeds("cat /tmp/done", timeout=limit(60)).strip(), "0")

      with subtest("a stranger on the fabric reaches ssh and nothing else, by IPv4 and IPv6"):
          t.assertEqual(let_in(desk, ipv4), {"tcp": {22}, "udp": set()})
          t.assertEqual(let_in(desk, ipv6), {"tcp": {22}, "udp": {DHCPV6_CLIENT}})

      with subtest("a peer reaches the engines' ports too, by the address that the cluster has for it"):
          t.assertEqual(
              let_in(node2, ipv4), {"tcp": {22} | opened("tcp"), "udp": opened("udp")}
          )
          t.assertEqual(let_in(node2, ipv6), {"tcp": {22}, "udp": {DHCPV6_CLIENT}})

      with subtest("a node that was rebooted is as before"):
          node1.reboot()
          node1.wait_for_unit("multi-user.target", timeout=limit(60))
          is_well(node1)
          t.assertEqual(firewall(), rules)
          desk.wait_until_succeeds("nixwulf cluster check /etc/cluster.toml", timeout=limit(10))

      with subtest("the units of all services leave little to a service that is taken over"):
          desk.succeed("systemd-analyze security --offline=true --threshold=40 --no-pager /etc/service-units/*.service")

      with subtest("a node with another MTU than its fabric's is refused with the reason"):
          node2.succeed("ip link set eth1 mtu 1400")
          status, words = desk.execute("nixwulf cluster check /etc/cluster.toml 2>&1")
          t.assertEqual(status, 3)
          t.assertIn("Node 'node2' has MTU 1400 on 'eth1'", words)
    '';
}
