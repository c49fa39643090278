"""Fit the performance model's constants on published numbers and write them with their uncertainty.

Usage: .venv/bin/python tools/fit_model.py CSV... [--out driver/nixwulf/data/model/constants.toml]

The files have the columns of results/published/numbers.csv. Run it when the table, the facts or the
formulas changed; docs/model.md says how the fit works.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fitting.fit import KINDS, fit
from fitting.published import cases, read_rows
from fitting.score import spreads
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import write_atomically
from nixwulf.perf.constants import FILE, NAMES

_HEAD = """\
# Written by tools/fit_model.py from published numbers; docs/model.md says what each one means.
# deviation: standard deviation of the logarithm (0.1: about 10 %). cases: of this engine on this
# kind of device; with none, the values are what other engines and devices have.
"""


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    found, _ = cases(row for path in arguments.csv for row in read_rows(path))
    used = [case for case in found if case.complete]
    table = fit(used, *spreads(used))
    lines = [_HEAD]
    for engine, kinds in table.items():
        for kind in KINDS:
            constants = kinds[kind]
            lines.append(f'\n[engines."{engine}".{kind}]\ncases = {constants.cases}')
            for name, deviation in zip(NAMES, constants.deviations, strict=True):
                value = f"{getattr(constants, name):.4g}"
                lines.append(f"{name} = {{ value = {value}, deviation = {deviation:.3f} }}")
            for name in ("spread", "prompt_spread"):
                lines.append(f"{name} = {{ value = {getattr(constants, name):.3f} }}")
    write_atomically(arguments.out, "\n".join(lines) + "\n")
    print(f"{len(used)} cases of {len({case.machine for case in used})} machines: {arguments.out}")


if __name__ == "__main__":
    try:
        main()
    except NixwulfError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
