# A bench node boots, is what its modules say to strangers, peers and users, and is so again after a reboot.
{
  desk,
  knocks,
  lib,
  nixosSystem,
  nixwulf,
  pkgs,
  ...
}:
let
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
  services =
    lib.genAttrs'
      [
        "distributed-llama"
        "exo"
        "llama-rpc-cpu"
        "llama-rpc-rocm"
        "llama-rpc-vulkan"
        "opensm"
        "power-meter"
        "vllm"
      ]
      (
        name:
        lib.nameValuePair "service-units/${name}.service" {
          text = lib.unsafeDiscardStringContext serving."${name}.service".text;
        }
      );
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
      environment.systemPackages = [ pkgs.chrony ];
    };
    node1.imports = [ knocks ];
    node2.imports = [ knocks ];
  };

  testScript =
    { nodes, ... }:
    ''
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

      with subtest("the driver reaches the nodes and finds them on their fabric"):
          found = desk.succeed("nixwulf cluster check /etc/cluster.toml")
          t.assertIn("All 2 nodes answer and are on their fabrics.", found)

      with subtest("the driver runs a command on every node"):
          names = desk.succeed("nixwulf nodes exec --cluster /etc/cluster.toml -- uname -n")
          t.assertEqual(sorted(names.splitlines()), ["node1: node1", "node2: node2"])

      with subtest("without the Internet a node follows the clock of the other, and a stranger is told no time"):
          # As users that there are: run by root, both become the user that they were built with, which Debian calls otherwise.
          node2.wait_until_succeeds(f"runuser -u chrony -- chronyc -n tracking | grep -F '({ipv4})'", timeout=limit(60))
          asks = f"chronyd -u root -Q -t {limit(10)} 'server {ipv4} iburst maxsamples 1' 2>&1"
          node2.succeed(asks)
          t.assertRegex(desk.fail(asks), "Timeout reached|No suitable source")

      with subtest("no password opens a node"):
          offered = desk.fail(
              "ssh -n -v -o PubkeyAuthentication=no -o BatchMode=yes root@node1 true 2>&1"
          )
          t.assertNotIn("password", offered.rpartition("Authentications that can continue")[2])

      with subtest("user bench logs in by key, locks memory without limit, reads the kernel's log and has a manager"):
          desk.succeed("sed 's/root@/bench@/' /etc/cluster.toml >/tmp/bench.toml")
          t.assertEqual(desk.succeed("ssh -n bench@node1 'id -un; ulimit -l'").split(), ["bench", "unlimited"])
          t.assertIn("Linux version", desk.succeed("ssh -n bench@node1 dmesg"))
          t.assertEqual(desk.succeed("ssh -n bench@node1 systemctl --user is-system-running").strip(), "running")

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

      # It asks the first for the time, whose answers and questions would be counted as the stranger's.
      node2.succeed("systemctl stop chronyd")

      with subtest("a stranger on the fabric reaches ssh and nothing else, by IPv4 and IPv6"):
          for address in [ipv4, ipv6]:
              t.assertEqual(let_in(node1, "eth1", desk, address), {"tcp": {22}, "udp": set()})

      with subtest("a peer reaches the engines' ports too, by the address that the cluster has for it"):
          t.assertEqual(
              let_in(node1, "eth1", node2, ipv4), {"tcp": {22} | ENGINES["tcp"], "udp": ENGINES["udp"]}
          )
          t.assertEqual(let_in(node1, "eth1", node2, ipv6), {"tcp": {22}, "udp": set()})

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
