"""What a wheel brings beside the package."""

import tomllib
from pathlib import Path

SETUPTOOLS = tomllib.loads(Path("driver/pyproject.toml").read_text())["tool"]["setuptools"]


def test_a_wheel_brings_every_cluster_and_sweep_where_the_driver_looks_for_them():
    brought = {
        f"{folder}/{name.name}"
        for folder, patterns in SETUPTOOLS["data-files"].items()
        for pattern in patterns
        for name in Path("driver").glob(pattern)
    }
    shipped = [*Path("clusters").rglob("*.toml"), *Path("sweeps").rglob("*.yaml")]
    assert {f"share/nixwulf/{path}" for path in shipped} <= brought
