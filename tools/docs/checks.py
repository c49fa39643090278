"""The checks of doctor: what each holds, what mends it, and where it comes from."""

from __future__ import annotations

from markdown import code, link, table

from nixwulf.ops.doctor.findings import checks

_INTRODUCTION = """# Checks of doctor

What `nixwulf doctor` judges of a machine, beside the [gates](gates.md), from
`driver/nixwulf/data/doctor.toml`. It asks without root and changes nothing. `wrong` is what makes
runs fail or far too slow; `warning` what may; `unknown` what could not be read. The day is when
the source was read last.

"""


def pages() -> dict[str, str]:
    """The page of checks."""
    rows = [
        [code(name), one.holds, one.state, one.mend, f"{link(one.source)}, {one.read}"]
        for name, one in checks().items()
    ]
    head = ["check", "holds", "else", "mend", "from"]
    return {"checks.md": _INTRODUCTION + table(head, rows)}
