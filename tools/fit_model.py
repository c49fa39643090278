"""Fit the performance model's constants on published numbers and write them with their uncertainty.

Usage: .venv/bin/python tools/fit_model.py CSV... [--out driver/nixwulf/data/model/constants.toml]

The files have the columns of results/published/numbers.csv. Run it when the table, the facts or the
formulas changed; docs/model.md says how the fit works.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fitting.fit import KINDS, Table, fit
from fitting.novelty import Fits
from fitting.published import cases, read_rows, row_day
from nixwulf.core.errors import NixwulfError
from nixwulf.core.files import write_atomically
from nixwulf.perf.inputs import FILE, NAMES, Constants

_BUILD = re.compile(r"b(\d{3,5})")
_HEAD = """\
# Written by tools/fit_model.py from published numbers; docs/model.md says what each one means.
# deviation: standard deviation of the logarithm (0.1: about 10 %). cases: of this engine on this
# kind of device; with none, the values are what other engines and devices have. variants: by back
# end and kernels. yearly: what a year adds to the logarithm, in the order of the constants. spread:
# deviation of the logarithm that constants leave, for a source that is new; chip, model and thin
# are added in squares where they are not among those known of the engine. newest: the software.
"""


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    rows = [row for path in arguments.csv for row in read_rows(path)]
    found, _ = cases(rows)
    used = [case for case in found if case.complete]
    table = fit(used, Fits(used).spreads())
    write_atomically(arguments.out, "\n".join(_lines(table, newest(rows))) + "\n")
    print(f"{len(used)} cases of {len({case.machine for case in used})} machines: {arguments.out}")


def newest(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The month of the newest software, and the newest build of llama.cpp."""
    day = max(day for row in rows if (day := row_day(row)))
    builds = [int(found[1]) for row in rows if (found := _BUILD.fullmatch(row["engine_version"]))]
    return {"month": f"{day:%B %Y}", "llama.cpp": f"b{max(builds)}", "day": day.isoformat()}


def _lines(table: Table, software: Mapping[str, str]) -> Iterator[str]:
    """The file of the constants."""
    some = next(iter(next(iter(table.values())).values()))
    yield _HEAD
    yield "[newest]"
    for key, value in software.items():
        yield f"{json.dumps(key)} = {value if key == 'day' else json.dumps(value)}"
    yield "\n[spread]"
    for name, spread in asdict(some.spreads).items():
        yield f"{name} = {{ {', '.join(f'{part} = {one:.2f}' for part, one in spread.items())} }}"
    for engine, kinds in table.items():
        yield f'\n[known."{engine}"]'
        for name in ("chips", "models"):
            yield f"{name} = {json.dumps(sorted(getattr(kinds[KINDS[0]], name)))}"
        yield f'\n[known."{engine}".configurations]'
        for name, count in kinds[KINDS[0]].configurations.items():
            yield f"{json.dumps(name)} = {count}"
    for engine, kinds in table.items():
        for kind in KINDS:
            yield f'\n[engines."{engine}".{kind}]'
            yield from _constants(kinds[kind])
            yield f"yearly = [{', '.join(f'{one:.3f}' for one in kinds[kind].yearly)}]"
            yield f'\n[engines."{engine}".{kind}.offsets]'
            for name, offset in kinds[kind].offsets.items():
                yield f"{json.dumps(name)} = {offset:.3f}"
            for name, constants in kinds[kind].variants.items():
                yield f'\n[engines."{engine}".{kind}.variants."{name}"]'
                yield from _constants(constants)


def _constants(constants: Constants) -> Iterator[str]:
    yield f"cases = {constants.cases}"
    for name, deviation in zip(NAMES, constants.deviations, strict=True):
        value = f"{getattr(constants, name):.4g}"
        yield f"{name} = {{ value = {value}, deviation = {deviation:.3f} }}"


if __name__ == "__main__":
    try:
        main()
    except NixwulfError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
