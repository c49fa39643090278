"""The flake, evaluated by the `nix` on PATH; these tests skip where that cannot be."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
_NO_INPUTS = re.compile(r"unable to download|cannot connect|[Cc]ould not resolve|offline|cached")


class Flake:
    """A flake in a folder: the checkout's, or a user's own."""

    def __init__(self, folder: Path = CHECKOUT):
        self.folder = folder

    def nix(self, *arguments: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        """What a nix command printed in the folder, whatever its exit code."""
        features = ("--extra-experimental-features", "nix-command flakes")
        return subprocess.run(
            ["nix", *arguments, *features],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def value(self, attribute: str, apply: str = "x: x"):
        """The value of an attribute, a function applied to it; fails with nix's words."""
        done = self.nix("eval", "--json", f".#{attribute}", "--apply", apply)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def locked_inputs(self) -> dict[str, str]:
        """The inputs that this flake is evaluated with, as references."""
        nodes = json.loads(self.nix("flake", "metadata", "--json").stdout)["locks"]["nodes"]
        inputs = {}
        for name, node in nodes["root"]["inputs"].items():
            locked = nodes[node]["locked"]
            inputs[name] = (
                f"path:{locked['path']}?narHash={locked['narHash']}"
                if locked["type"] == "path"
                else f"github:{locked['owner']}/{locked['repo']}/{locked['rev']}"
            )
        return inputs


@pytest.fixture(scope="session")
def flake() -> Flake:
    if not shutil.which("nix"):
        pytest.skip("There is no nix on PATH: the flake was not evaluated.")
    checkout = Flake()
    done = checkout.nix("eval", "--json", ".#lib.inventories")
    if done.returncode != 0 and _NO_INPUTS.search(done.stderr):
        pytest.skip(f"This nix cannot get the flake's inputs: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return checkout
