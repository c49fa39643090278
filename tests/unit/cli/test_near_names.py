"""Every command that meets an unknown name says the nearest that there is, in one form."""

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.core.text import did_you_mean, nearest

PREDICT = ("predict", "--cluster", "mini-3")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("bench", "smok"), "smoke"),
        (("bench", "Smoke.yaml"), "smoke"),
        (("bnch",), "bench"),
        (("cluster", "chek"), "check"),
        (("nodes", "reboots"), "reboot"),
        (("engines", "instal"), "install"),
        (("preflight", "--cluster", "min-3"), "mini-3"),
        (("preflight", "--cluster", "mini-3", "--node", "mini4"), "mini3"),
        (("preflight", "--cluster", "mini-3", "--gate", "fabrik"), "fabric"),
        (("preflight", "--cluster", "mini-3", "--waive", "Clok"), "clock"),
        ((*PREDICT, "--model", "gpt-oss-12b"), "gpt-oss-120b' or 'gpt-oss-20b"),
        ((*PREDICT, "--model", "gpt-oss-20b", "--engine", "lama.cpp"), "llama.cpp"),
        ((*PREDICT, "--model", "gpt-oss-20b", "--fabric", "swich"), "switch"),
    ],
)
def test_the_nearest_name_is_asked_about(arguments, meant):
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    words = done.output.splitlines()[-1]
    # Near names stand before anything else that may be given.
    assert words.split("; ")[1].startswith(f"did you mean '{meant}'?"), words


def test_the_nearest_of_some_names():
    known = ["dgx-spark", "mac-studio-m3-ultra", "framework-desktop"]
    assert nearest("spark", known) == ["dgx-spark"]
    assert nearest("M3", known) == []
    assert nearest("m3-ultra", known) == ["mac-studio-m3-ultra"]
    assert nearest("DGX_SPARK", known) == ["dgx-spark"]
    assert nearest("x" * 1_000_000, known) == []
    assert did_you_mean("zzz", known) == f"known: {', '.join(known)}."
    assert did_you_mean("zzz", []) == "known: none."
    assert did_you_mean("zzz", [f"name{n}" for n in range(100)]).endswith(" and 60 more.")
