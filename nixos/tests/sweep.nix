# The driver's own sweep over three machines: llama.cpp's RPC across the switch, and every record is valid.
{ desk, ... }:
{
  nodes = {
    inherit desk;
    node1 = { };
    node2 = { };
    node3 = { };
  };

  testScript = ''
    SWEEP = """
    name: vms
    models:
      tiny: {random: {architecture: llama}}
    matrix:
      model: [tiny]
      nodes: [1, 3]
      fabric: [switch]
      parallelism: [single, pipeline, tensor]
      parameters: {n_prompt: [64], n_gen: [16], threads: [1]}
    samples: 2
    limits: {wall_s: 600, progress_s: 300}
    """

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")
    desk.succeed(f"cat >/tmp/sweep.yaml <<'EOF'\n{SWEEP}\nEOF")

    with subtest("one and three nodes run the model, by layers and by tensors"):
        desk.succeed(
            "cd /tmp && nixwulf bench sweep.yaml --cluster /etc/cluster.toml --out out >&2"
        )

    with subtest("every run left a record, all are valid and ok"):
        desk.succeed("nixwulf validate /tmp/out/records/*.json")
        records = [
            json.loads(desk.succeed(f"cat {path}"))
            for path in desk.succeed("ls /tmp/out/records/*.json").split()
        ]
        t.assertEqual([record["outcome"] for record in records], ["ok"] * 3)

    with subtest("where three nodes ran, the switch is proved to have carried the model's work"):
        proofs = [
            record["sanity"]["transport"]
            for record in records
            if record["case"]["nodes"] == 3
        ]
        t.assertEqual([proof["proved"] for proof in proofs], [True, True])
        for proof in proofs:
            t.assertEqual(set(proof["bytes"]), {"node1", "node2", "node3"})
            t.assertGreater(min(proof["bytes"].values()), 10_000)
  '';
}
