# A node that dies in the middle of a run leaves a record that says so, and nothing of the run on the other node.
{ desk, ... }:
{
  nodes = {
    inherit desk;
    node1 = { };
    node2 = { };
  };

  testScript = ''
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
    repetitions: 2
    limits: {wall_s: 300, progress_s: 60}
    """

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")
    desk.succeed(f"cat >/tmp/sweep.yaml <<'EOF'\n{SWEEP}\nEOF")

    with subtest("a node loses its power while the model generates, and the driver ends in bounded time"):
        # The test driver's shell ends at the first command that fails, and so does what it puts into the background.
        desk.succeed(
            "(cd /tmp; nixwulf bench sweep.yaml --cluster /etc/cluster.toml --out out && echo 0 >done || echo $? >done)"
            " >/tmp/log 2>&1 &"
        )
        # With the number of tokens: the driver also asks llama-bench for its version and devices before the run.
        retry(
            lambda _: node1.execute("pgrep -f '[l]lama-bench.* 4096'")[0] == 0
            or desk.execute("test -s /tmp/done")[0] == 0,
            timeout_seconds=limit(60),
        )
        desk.fail("test -s /tmp/done && cat /tmp/log >&2")
        node2.crash()
        # limits.progress_s and 90 s (docs/nix.md), and as much again for the run that comes after.
        desk.wait_until_succeeds("test -s /tmp/done", timeout=300)
        t.assertEqual(desk.succeed("cat /tmp/done").strip(), "1")

    with subtest("both records are valid: the run that lost its node names it, the next does not reach it"):
        desk.succeed("nixwulf validate /tmp/out/records/*.json")
        records = [
            json.loads(desk.succeed(f"cat {path}"))
            for path in sorted(desk.succeed("ls /tmp/out/records/*.json").split())
        ]
        lost, after = records
        # ssh may notice it before the model's silence is a hang; the reason is the same.
        t.assertIn(lost["outcome"], ["hang", "failed"])
        t.assertEqual(lost["failure"]["phase"], "measure")
        t.assertIn("on node 'node2' was cut off", lost["failure"]["reason"])
        t.assertEqual((after["outcome"], after["failure"]["phase"]), ("failed", "facts"))
        t.assertIn("Node 'node2' did not answer", after["failure"]["reason"])
        for record in records:
            t.assertEqual(record["metrics"], [])

    with subtest("nothing of the run is left on the node that lives"):
        node1.wait_until_fails("pgrep 'llama-bench|rpc-server'", timeout=60)
  '';
}
