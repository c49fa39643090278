"""The predict command as a user types it, and a small mixture to ask it about."""

import json

from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.llm.random_model import RandomModel

MOE = RandomModel(
    architecture="qwen3moe", layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=96,
    vocabulary=400, experts=4, experts_used=2,
)  # fmt: skip
BIG = ("--model", "MiniMax-M2-UD-Q6_K_XL", "--size-gib", "180.94")
SMALL = ("--model", "gpt-oss-20b")
PAIR = ("--nodes", "2", "--fabric", "cable")


def predict(*arguments, cluster="framework-2"):
    """Exit code and output."""
    done = CliRunner().invoke(cli, ["predict", "--cluster", cluster, *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def ways(*arguments, cluster="framework-2"):
    code, output = predict(*arguments, "--format", "json", cluster=cluster)
    assert code == 0, output
    return json.loads(output)["ways"]


def refused(*arguments, cluster="framework-2"):
    """The sentence of what is refused: one line, exit code 2."""
    code, output = predict(*arguments, cluster=cluster)
    assert code == 2, output
    (line,) = output.splitlines()
    return line
