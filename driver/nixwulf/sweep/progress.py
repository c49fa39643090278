"""How a sweep goes on, for the terminal: a live line where there is one, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from nixwulf.core.metric import accepted
from nixwulf.core.text import format_significant, plural
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.record import Record
from nixwulf.sweep.render import pairs

_MOST_SHOWN = 4  # metrics of a run on its line; the report has all


class TerminalProgress:
    """An observer of a sweep that prints a line for each run, and the time that is left."""

    def __init__(self, console: Console) -> None:
        """Print to a console; its live line appears only on a terminal."""
        self._console = console
        self._live = Progress(
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task("Starting", total=None, left="")
        self._title = ""
        self._runs: Sequence[tuple[Case, int]] = ()
        self._ended: list[float] = []
        self._built = ("", -1)

    def __enter__(self) -> TerminalProgress:
        """Show the live line."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the live line away."""
        self._live.stop()

    def step(self, words: str) -> None:
        """A line, or on a terminal the live line's new text."""
        self._live.update(self._task, description=words)
        if not self._console.is_terminal:
            self._print(words)

    def building(self, step: str, share: float) -> None:
        """On a terminal the share moves; elsewhere there is a line for each tenth."""
        self._live.update(self._task, description=step, total=1.0, completed=share)
        if not self._console.is_terminal and (step, tenth := int(share * 10)) != self._built:
            self._built = (step, tenth)
            self._print(f"{step}: {share:.0%}")

    def show(self, table: Table) -> None:
        """Print a table above the live line."""
        self._console.print(table)

    def sweep_starts(self, runs: Sequence[tuple[Case, int]]) -> None:
        """Keep what is to come: the time that is left is estimated from it."""
        self._runs = runs

    def run_starts(self, case: Case, repetition: int) -> None:
        """The case, and how far the sweep is."""
        self._title = self._name(case, repetition)
        self._live.update(
            self._task,
            description=self._title,
            total=len(self._runs),
            completed=len(self._ended),
            left=self._left(),
        )

    def phase_starts(self, phase: str) -> None:
        """Beside the case on the live line."""
        self._live.update(
            self._task,
            description=f"{self._title}: {phase}",
            total=len(self._runs),  # a copy of the model shows its own
            completed=len(self._ended),
        )

    def run_ends(self, record: Record, seconds: float) -> None:
        """One line: what came of it, how long it took, how long the rest will take."""
        self._ended.append(seconds)
        measured = ", ".join(
            f"{metric['name']} {format_significant(metric['value'])} {metric['unit']}"
            f"{accepted(metric.get('observed', {}).get('acceptance', ''))}"
            for metric in record["metrics"][:_MOST_SHOWN]
        )
        came = measured or f"{record['outcome']}: {record['failure']['reason']}"
        place = f"[{len(self._ended)}/{len(self._runs)}]"
        self._print(f"{place} {self._title}: {came} ({seconds:.1f} s{self._left(', ')})")

    def _name(self, case: Case, repetition: int) -> str:
        """What differs between a run and the others of its sweep."""
        way = f"{plural(case.nodes, 'node')} {case.fabric or ''}".rstrip()
        cases = [other for other, _ in self._runs]
        split = [case.parallelism] if case.nodes > 1 and case.parallelism else []
        variant = [
            value
            for key in ("benchmark", "engine", "model")
            if len({getattr(other, key) for other in cases}) > 1 and (value := getattr(case, key))
        ]
        # Engines and benchmarks have parameters of their own, and are named where they differ.
        kin = [o for o in cases if (o.benchmark, o.engine) == (case.benchmark, case.engine)]
        own = {
            key: value
            for key, value in case.parameters.items()
            if any(other.parameters.get(key) != value for other in kin)
        }
        parameters = [pairs(own)] if own else []
        several = len({number for _, number in self._runs}) > 1
        number = [f"(pass {repetition + 1})"] if several else []
        return " ".join([*variant, way, *split, *parameters, *number])

    def _left(self, before: str = "") -> str:
        """The time that is left: of a case that ran before, what it took, else the mean of all."""
        to_come = self._runs[len(self._ended) :]
        if not self._ended or not to_come:
            return ""
        known = {case.id: took for (case, _), took in zip(self._runs, self._ended, strict=False)}
        mean = sum(self._ended) / len(self._ended)
        seconds = sum(known.get(case.id, mean) for case, _ in to_come)
        return f"{before}about {time.strftime('%M:%S', time.gmtime(seconds))} left"

    def _print(self, words: str) -> None:
        soft = not self._console.is_terminal  # there, no word is broken
        with suppress(OSError):  # a run goes on when nobody can hear of it
            self._console.print(words, highlight=False, markup=False, soft_wrap=soft)


def make_progress(*, quiet: bool = False) -> TerminalProgress:
    """An observer that writes to standard error, so that standard output stays for results."""
    return TerminalProgress(Console(file=sys.stderr, quiet=quiet))
