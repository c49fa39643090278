# A node that dies in the middle of a run leaves a record that says so, and nothing of the run on the other node.
{ desk, ... }:
{
  nodes = {
    inherit desk;
    node1 = { };
    node2 = { };
  };

  testScript = ''
    import json

    SWEEP = """
    name: loss
    models:
      tiny: {random: {architecture: llama}}
    matrix:
      model: [tiny]
      nodes: [2]
      fabric: [switch]
      parallelism: [pipeline]
      parameters: {n_prompt: [64], n_gen: [4096], threads: [1]}
    samples: 50
    limits: {wall_s: 300, progress_s: 60}
    """

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")
    desk.succeed(f"cat >/tmp/sweep.yaml <<'EOF'\n{SWEEP}\nEOF")

    with subtest("a node crashes while the model generates"):
        desk.succeed(
            "(cd /tmp && nixwulf bench sweep.yaml --cluster /etc/cluster.toml --out out; echo $? >/tmp/done)"
            " >/tmp/log 2>&1 &"
        )
        # With the number of tokens: the driver also asks llama-bench for its version and devices before the run.
        node1.wait_until_succeeds("pgrep -f '[l]lama-bench.* 4096'", timeout=400)
        node2.crash()
        desk.wait_until_succeeds("test -s /tmp/done", timeout=400)

    with subtest("its record is valid, is not ok, and names no speed"):
        desk.succeed("nixwulf validate /tmp/out/records/*.json")
        record = json.loads(desk.succeed("cat /tmp/out/records/*.json"))
        t.assertIn(record["outcome"], ["failed", "hang", "timeout"])
        t.assertEqual(desk.succeed("cat /tmp/done").strip(), "1")

    with subtest("nothing of the run is left on the node that lives"):
        node1.wait_until_fails("pgrep 'llama-bench|rpc-server'", timeout=60)
  '';
}
