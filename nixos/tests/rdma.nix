# RDMA over Soft-RoCE: a device on an ordinary interface, memlock without limit, the driver's perftest across it, and what
# is refused. No collectives: NCCL and RCCL start on a GPU only, and Open MPI is driven over TCP.
{
  desk,
  lib,
  pkgs,
  ...
}:
let
  machine =
    { config, ... }:
    {
      nixwulf.fabrics.switch = {
        kind = lib.mkForce "roce";
        rdmaDevice = "rxe0";
        gidIndex = 1;
      };
      environment.systemPackages = [ pkgs.socat ];
      # Somebody whose limit is NixOS' own again.
      users.users.limited = {
        isNormalUser = true;
        openssh.authorizedKeys.keys = config.nixwulf.cluster.sshKeys;
      };
      security.pam.loginLimits = [
        {
          domain = "limited";
          type = "-";
          item = "memlock";
          value = 8192;
        }
      ];
    };
in
{
  nodes = {
    inherit desk;
    node1 = machine;
    node2 = machine;
  };

  testScript =
    { nodes, ... }:
    let
      address = name: nodes.${name}.nixwulf.fabrics.switch.address;
    in
    ''
      NODE1 = "${address "node1"}"
      PORT = "/sys/class/infiniband/rxe0/ports/1"
      SWEEP = """
      name: rdma
      matrix:
        benchmark: [perftest]
        nodes: [2]
        fabric: [switch]
        transport: [rdma]
        parameters: {operation: [write], kind: [latency, bandwidth], iterations: [5]}
      samples: 1
      limits: {wall_s: 600, progress_s: 300}
      """

      def gid_of(address: str) -> str:
          numbers = [f"{int(number):02x}" for number in address.split(".")]
          return "0000:" * 5 + "ffff:" + numbers[0] + numbers[1] + ":" + numbers[2] + numbers[3]

      def refusals(edit: str) -> str:
          """What preflight says of the cluster file after an edit of it."""
          desk.succeed(f"sed '{edit}' /tmp/cluster.toml >/tmp/edited.toml")
          status, words = desk.execute("nixwulf preflight --cluster /tmp/edited.toml 2>&1")
          t.assertEqual(status, 3, words)
          return words

      start_all()
      for machine in machines:
          machine.wait_for_unit("multi-user.target")
          machine.wait_until_succeeds("ip -4 address show dev eth1 | grep -q inet")

      with subtest("the cluster's nodes reach the ports of RoCE and perftest, and nobody else does"):
          node1.succeed("systemd-run --unit=perftest-port iperf3 --server --port 18515")
          node1.succeed("systemd-run --unit=roce-port socat -u UDP4-RECV:4791 CREATE:/tmp/received")
          node1.wait_for_open_port(18515)
          node1.wait_until_succeeds("ss -Hlun 'sport = 4791' | grep -q .")
          t.assertTrue(reaches(desk, NODE1, 22))
          t.assertFalse(reaches(desk, NODE1, 18515))
          t.assertTrue(reaches(node2, NODE1, 18515))
          # The network keeps their order.
          for machine in [desk, node2]:
              machine.succeed(f"bash -c 'echo from {machine.name} >/dev/udp/{NODE1}/4791'")
          node1.wait_until_succeeds("grep -q node2 /tmp/received")
          t.assertEqual(node1.succeed("cat /tmp/received"), "from node2\n")
          node1.succeed("systemctl stop perftest-port roce-port")

      for machine in [node1, node2]:
          machine.succeed("rdma link add rxe0 type rxe netdev eth1")
          machine.wait_until_succeeds("ibv_devinfo -d rxe0 | grep PORT_ACTIVE")
      # As whom a benchmark needs no right of root's.
      desk.succeed("sed 's/root@/bench@/' /etc/cluster.toml >/tmp/cluster.toml")

      with subtest("GID 1 is RoCE v2 of the fabric's IPv4 address"):
          for machine, address in [(node1, NODE1), (node2, "${address "node2"}")]:
              t.assertEqual(machine.succeed(f"cat {PORT}/gids/1").strip(), gid_of(address))
              kind = machine.succeed(f"cat {PORT}/gid_attrs/types/1")
              t.assertEqual(kind.strip(), "RoCE v2")

      with subtest("logins of root and bench, and units of both, may lock memory without limit"):
          for user, unit in [("root", "systemd-run"), ("bench", "systemd-run --user")]:
              for memlock in ["ulimit -l", f"{unit} --pipe --wait -q sh -c \"'ulimit -l'\""]:
                  found = desk.succeed(f"ssh -n {user}@node1 {memlock}")
                  t.assertEqual(found.strip(), "unlimited", f"{user}: {memlock}")

      with subtest("the driver's perftest ends well, and counters prove that rdma carried it"):
          desk.succeed(f"cat >/tmp/sweep.yaml <<'EOF'\n{SWEEP}\nEOF")
          desk.succeed(
              "cd /tmp && nixwulf bench sweep.yaml --cluster cluster.toml --out out >&2",
              timeout=1200,
          )
          desk.succeed("nixwulf validate /tmp/out/records/*.json")
          records = [
              json.loads(desk.succeed(f"cat {path}"))
              for path in desk.succeed("ls /tmp/out/records/*.json").split()
          ]
          t.assertEqual([record["outcome"] for record in records], ["ok"] * 2)
          for record in records:
              proof = record["sanity"]["transport"]
              t.assertTrue(proof["proved"])
              for name in ["node1", "node2"]:
                  t.assertEqual(proof["counters"][name]["rdma"]["driver"], "rdma_rxe")
                  t.assertGreater(proof["counters"][name]["rdma"]["packets"], 0)

      with subtest("a GID that is not the fabric's address is refused, with the one that is"):
          for number in [0, 9]:
              words = refusals(f"s/gid_index = 1/gid_index = {number}/")
              t.assertIn(f"GID {number} of 'rxe0' on node 'node1'", words)
              t.assertIn(f"is not of the address '{NODE1}'; GID 1 is; correct gid_index.", words)

      with subtest("a login that may lock little memory is refused"):
          t.assertIn(
              "A login on node 'node2' may lock 8192 KiB of memory, and RDMA needs any amount",
              refusals("s/bench@node2/limited@node2/"),
          )

      with subtest("a node with another MTU than its fabric's is refused"):
          node2.succeed("ip link set eth1 mtu 1400")
          t.assertIn("Node 'node2' has MTU 1400 on 'eth1'", refusals(""))
    '';
}
