"""What nix makes of the how-to pages: systems of the template's cluster before and after each."""

import json
import re
from pathlib import Path

import pytest

from conftest import CHECKOUT

HOW_TO = CHECKOUT / "docs" / "how-to"
TEMPLATE = (CHECKOUT / "templates" / "cluster" / "cluster.toml").read_text()
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi you@desk"
OWN = re.sub(r'"ssh-ed25519 .*"', f'"{KEY}"', TEMPLATE)

# hand-made: sops-nix is no input of this flake (form: sops-nix of 22 June 2026, modules/sops). The
# page's own text was evaluated with the real one on 27 November 2026.
SOPS_NIX = """
{ lib, config, ... }: let inherit (lib) mkOption types; in {
  options.sops = {
    defaultSopsFile = mkOption { type = types.path; };
    age.keyFile = mkOption { type = types.nullOr types.str; };
    secrets = mkOption {
      type = types.attrsOf (types.submodule ({ name, ... }: {
        options.path = mkOption { type = types.str; default = "/run/secrets/${name}"; };
      }));
    };
  };
}
"""

# One evaluation of all pages: each more takes as long as the first.
FUNCTION = """
  lib: let
    nixwulf = { inherit lib; };
    configs = file: builtins.mapAttrs (_: one: one.config)
      (nixwulf.lib.mkCluster { inherit file; }).nixosConfigurations;
    firewall = config: config.networking.firewall.extraCommands
      + config.networking.firewall.extraInputRules;
    root = config: config.fileSystems."/".device;
    keys = config: config.users.users.root.openssh.authorizedKeys.keys;
    before = configs ./before.toml;
    added = configs ./added.toml;
    secret = ((import ./flake.nix).outputs {
      inherit nixwulf;
      sops-nix.nixosModules.sops = ./sops.nix;
    }).nixosConfigurations.mine-mini1.config;
  in {
    firewalls = [ (firewall before.mine-mini1) (firewall added.mine-mini1) ];
    new = firewall added.mine-mini4;
    keys = keys (configs ./keys.toml).mine-mini1;
    roots = [ (root before.mine-mini1) (root (configs ./disk.toml).mine-mini1) ];
    token = secret.nixwulf.vllm.rayTokenFile;
    keyFile = secret.sops.age.keyFile;
  }
"""


def block(page: str, language: str) -> str:
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    found = fence.findall((HOW_TO / page).read_text())
    return next(text for name, text in found if name == language)


@pytest.fixture(scope="module")
def values(flake, tmp_path_factory) -> dict:
    folder: Path = tmp_path_factory.mktemp("pages")
    keys = block("change-the-ssh-key.md", "toml").split("\n")[1]
    files = {
        "before.toml": OWN,
        "added.toml": f"{OWN}\n{block('add-a-node.md', 'toml')}",
        "keys.toml": re.sub(r"(?m)^ssh_keys = .*$", keys, OWN),
        "disk.toml": OWN.replace("nvme-EXAMPLE_1", "nvme-ACME_2TB_S9"),
        "cluster.toml": OWN,
        "flake.nix": block("keep-secrets.md", "nix"),
        "secrets.yaml": "",
        "sops.nix": SOPS_NIX,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    function = FUNCTION.replace("./", f"{folder}/")
    done = flake.nix("eval", "--read-only", "--json", "--impure", ".#lib", "--apply", function)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_others_let_a_new_node_in_only_after_an_update(values):
    before, after = values["firewalls"]
    assert "192.168.1.32" in before
    assert "192.168.1.34" not in before
    assert "192.168.1.34" in after
    assert "192.168.1.31" in values["new"]


def test_root_is_let_in_by_both_keys_of_the_page(values):
    assert [key.split()[-1] for key in values["keys"]] == ["old", "new"]


def test_another_disk_is_mounted_by_another_name(values):
    """So an update to it is refused where that disk is not there."""
    before, after = values["roots"]
    assert re.fullmatch(r"/dev/disk/by-partlabel/disk-mini1-\w{8}-root", before)
    assert after != before


def test_the_token_comes_from_what_the_delivered_key_decrypts(values):
    assert values["token"] == "/run/secrets/ray-token"  # noqa: S105 - where it is, not what
    assert values["keyFile"] == "/var/lib/sops-nix/key.txt"
    (command,) = [c for c in block("keep-secrets.md", "").splitlines() if "age-keygen" in c]
    assert command.split()[2] == f"../files{values['keyFile']}"
