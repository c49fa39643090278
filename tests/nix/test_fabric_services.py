"""Services of engines after an update: what update.sh finds in a system that the flake makes."""

import re
import subprocess

from nixwulf.ops.deploy.install import _SCRIPT

NODE = """
system: (system.extendModules {
  modules = [
    {
      nixwulf.llama-rpc.instances.office.fabric = "switch";
      nixwulf.distributed-llama = { enable = true; fabric = "switch"; };
    }
  ];
}).config.services.udev.extraRules
"""


def test_the_services_of_a_fabric_are_found_in_the_rules_that_the_flake_writes(flake, tmp_path):
    rules = tmp_path / "etc/udev/rules.d/99-local.rules"
    rules.parent.mkdir(parents=True)
    rules.write_text(flake.value("nixosConfigurations.mini-3-mini2", NODE))
    found = re.search(r"^fabric_services\(\) \{.*?^\}", _SCRIPT, re.DOTALL | re.MULTILINE)
    assert found
    done = subprocess.run(
        ["sh", "-c", f'{found[0]}\nfabric_services "$1"', "sh", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "enp1s0 distributed-llama.service",
        "enp1s0 llama-rpc-office.service",
    ]
