import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes tells of the machine's load, not of what is tested.
settings.register_profile("nixwulf", deadline=None)
# Of 'make check'; 'make test' tries as many examples as Hypothesis does.
settings.register_profile("few-examples", deadline=None, max_examples=20)
settings.load_profile("nixwulf")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and what a test starts and
# interrupts would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A developer's own cluster is none that a test may reach.
os.environ.pop("NIXWULF_CLUSTER", None)

# What all tests of a folder or file need, by its path below this one.
MARKS = {
    "containers": "slow",
    "engines": "lab",
    "lab": "lab",
    "lab/test_cables.py": "waits",
    "lab/test_characters_of_several_tokens.py": "waits",
    "lab/test_cluster_new.py": "waits",
    "lab/test_deploy.py": "waits",
    "lab/test_engine_versions.py": "waits",
    "lab/test_engines_on_nodes.py": "waits",
    "lab/test_held_gates.py": "waits",
    "lab/test_lab_lost.py": "waits",
    "lab/test_lab_rootless.py": "waits",
    "lab/test_lab_shell.py": "waits",
    "lab/test_locks.py": "waits",
    "lab/test_models.py": "waits",
    "lab/test_odd_nodes.py": "waits",
    "lab/test_own_cluster.py": "waits",
    "lab/test_passed_arguments.py": "waits",
    "lab/test_pinned_host_keys.py": "waits",
    "lab/test_quality_in_the_lab.py": "waits",
    "lab/test_recovering.py": "waits",
    "lab/test_served_in_the_lab.py": "waits",
    "lab/test_speculation_in_the_lab.py": "waits",
    "lab/test_update.py": "waits",
    "lab/test_vanished_nodes.py": "waits",
    "nix": "nix",
    "sandbox": "slow",
    "unit/cli/test_interrupted_commands.py": "slow",
    "unit/core/test_web.py": "slow",
    "unit/nodes/test_hold_script.py": "slow",
    "unit/nodes/test_transfer.py": "slow",
    "unit/ops/models/test_models_get.py": "slow",
    "unit/ops/models/test_models_peer.py": "slow",
    "unit/outputs/test_long_lines.py": "slow",
    "unit/plugins/engines/llama_cpp/test_llama_cpp_build.py": "slow",
    "unit/plugins/engines/llama_cpp/test_llama_cpp_node.py": "slow",
    "unit/plugins/meters/test_power_meters.py": "slow",
    "unit/plugins/runtime/test_clocks.py": "slow",
    "unit/plugins/switches/test_power_switches.py": "slow",
    "unit/report/site/test_site_browser.py": "browser",
    "unit/report/test_many_runs.py": "slow",
    "unit/repository/test_ask_sources.py": "slow",
    "unit/repository/test_how_to_pages.py": "slow",
    "unit/repository/test_model_score.py": "slow",
    "unit/repository/test_setup.py": "slow",
    "unit/results/publish/test_planted.py": "slow",
    "unit/sweep/test_shipped_pairs.py": "slow",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the mark of its folder or file, so that 'make check' can leave it out."""
    for item in items:
        path = Path(item.path).relative_to(Path(__file__).parent)
        for place in (path, *path.parents):
            if mark := MARKS.get(str(place)):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """In CI a lab test that is skipped has failed: there, every machine can do all but a GPU's."""
    report = yield
    in_lab = "lab" in Path(item.path).relative_to(item.config.rootpath).parts
    expected = in_lab and not item.get_closest_marker("gpu")
    if os.environ.get("CI") == "true" and expected and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"A lab test was skipped in CI: {report.longrepr}"
    return report
