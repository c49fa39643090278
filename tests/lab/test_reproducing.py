"""An earlier run repeated in the lab: clean, and with slow-downs that are planted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nixwulf.plugins.engines.llama_cpp import ENGINE
from nixwulf.results.store import read_folder
from nixwulf.sweep.plan import load_plan
from nixwulf.sweep.reproduce.outcome import repeats

SWEEP = """
name: base
models:
  tiny: {random: {layers: 2}}
matrix:
  model: [tiny]
  nodes: [2]
  fabric: [gbe5]
  parallelism: [tensor]
  parameters: {n_prompt: [64], n_gen: [8], threads: [1]}
samples: 5
limits: {wall_s: 300, progress_s: 120}
"""
# A twentieth of the rate and 40 ms more of a round trip: beyond any noise of a machine.
RATE, DELAY = "rate_gbps = 4.7", "delay_us = 250"
GROUP = Path("/sys/fs/cgroup/cpu/nixwulf-reproduce")


@pytest.fixture(scope="module", autouse=True)
def _engine():
    ENGINE.install_local(lambda step, share: None)


def nixwulf(*arguments, before=()):
    command = [*before, sys.executable, "-m", "nixwulf", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "base.yaml").write_text(SWEEP)
    done = nixwulf("bench", folder / "base.yaml", "--out", folder / "base")
    assert done.returncode == 0, done.stderr
    return folder / "base"


def repeat(base, out, cluster="lab", before=()):
    done = nixwulf("reproduce", base, "--cluster", cluster, "--out", out, before=before)
    assert done.returncode in {0, 1}, done.stderr
    found = repeats(load_plan(out / "plan.json"), read_folder(out).records)
    return {one.expected.metric: one for one in found}, done.stdout


def changed_lab(folder, old, new):
    text = Path("clusters/lab.toml").read_text()
    head, tail = text.split("[fabrics.gbe5]")
    path = folder / "lab.toml"
    path.write_text(f"{head}[fabrics.gbe5]{tail.replace(old, new, 1)}")
    return path


def causes(found):
    return [cause.what for one in found.values() for cause in one.causes]


def test_a_clean_repeat_is_measured_beside_the_earlier_run_and_blames_no_link(base, tmp_path):
    blamed = []
    # Other work on this machine can slow a short stream as much as a bad link does, but it passes.
    for attempt in range(3):
        found, text = repeat(base, tmp_path / f"clean{attempt}")
        assert {"prompt", "decode"} <= found.keys()
        for one in found.values():
            assert one.measured > 0
            assert one.interval.low <= one.ratio <= one.interval.high
        assert "tiny, 2 nodes, tensor, gbe5, decode" in text
        blamed = [cause for cause in causes(found) if "carried" in cause or "quota" in cause]
        if not blamed:
            break
    assert not blamed


def test_a_twentieth_of_the_rate_and_more_delay_are_named_with_the_command(base, tmp_path):
    slow = changed_lab(tmp_path, f"{DELAY}, {RATE}", "delay_us = 20250, rate_gbps = 0.235")
    found, text = repeat(base, tmp_path / "slow", slow)
    assert found["decode"].verdict == "slower"
    assert any("'gbe5' carried" in cause for cause in causes(found))
    assert any("a round trip on 'gbe5' took" in cause for cause in causes(found))
    assert f"Next: nixwulf bench links --cluster {slow}" in text


@pytest.mark.skipif(
    os.getuid() != 0 or not GROUP.parent.is_dir() or not shutil.which("sh"),
    reason="a quota takes root and control groups of version 1",
)
def test_a_quota_of_a_tenth_of_a_cpu_is_named(base, tmp_path):
    GROUP.mkdir(exist_ok=True)
    try:
        (GROUP / "cpu.cfs_quota_us").write_text("20000")
        joined = ("sh", "-c", f'echo $$ >{GROUP}/cgroup.procs; exec "$@"', "sh")
        found, _ = repeat(base, tmp_path / "quota", before=joined)
        named = [cause for cause in causes(found) if "a CPU quota allows 0.2 of" in cause]
        assert named or all(one.verdict != "slower" for one in found.values())
    finally:
        GROUP.rmdir()
