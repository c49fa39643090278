"""Parameters: axes of a sweep that benchmarks, engines and toolboxes have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """An axis of the sweep that a benchmark or an engine has; values are of the default's type.

    help: what it does, for the reference that `make docs` writes.
    """

    default: int | str
    minimum: int = 0
    choices: tuple[str, ...] = ()
    help: str = ""

    def problem(self, value: Any) -> str | None:
        """What was expected instead of a value, or None."""
        if type(value) is not type(self.default):
            return f"{type(self.default).__name__}"
        if self.choices and value not in self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(value, int) and value < self.minimum:
            return f"int of at least {self.minimum}"
        return None
