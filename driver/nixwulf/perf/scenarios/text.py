"""What a prediction is called, never as a measurement is, and where its time goes.

A time is drawn as a bar of letters, one for each part of a prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.text import format_significant, plural
from nixwulf.perf.predict import Prediction
from nixwulf.results.identity import REPLICAS

if TYPE_CHECKING:
    from nixwulf.perf.scenarios.candidates import Candidate, Question

LETTERS: Mapping[str, Sequence[str]] = read_toml(DATA / "model" / "parts.toml")
"""By part: its letter, what it is, and its colour."""
_SMALL = 0.01
ASSUMED = "Assumed, because it is not known:"


def change(before: Prediction, after: Prediction) -> str:
    """'~18.1, +19 %'."""
    return f"~{format_significant(after.value)}, {percent(after.value / before.value)}"


def percent(factor: float) -> str:
    """A factor as a change: '+19 %'."""
    return f"{100 * (factor - 1):+.0f} %".replace("-0 %", "+0 %")


def how(candidate: Candidate) -> str:
    """'2 nodes, pipeline, cable, tcp'; of one node its platform."""
    count = plural(len(candidate.nodes), "node")
    if candidate.parallelism == REPLICAS:
        return f"{count}, {REPLICAS}"
    if candidate.fabric is None:
        return f"{count}, {candidate.nodes[0].platform}"
    more = f" (and {candidate.alike} equal)" if candidate.alike else ""
    name = candidate.fabric.name
    if candidate.groups > 1:
        count += f" in {candidate.groups} servers"
    how_cut = candidate.split and f" {candidate.split}"
    return f"{count}, {candidate.parallelism}{how_cut}, {name}{more}, {candidate.transport}"


def heading(question: Question) -> str:
    """What is asked, in one line."""
    lengths = f"a prompt of {question.n_prompt:,} tokens" if question.n_prompt else "no prompt"
    depth = f" behind {question.depth:,}" if question.depth else ""
    batch = f", {question.batch} sequences at once" if question.batch > 1 else ""
    backend = f" ({question.backend})" if question.backend else ""
    drafts = ", without drafts"
    if question.drafts:
        drafts = f", {question.drafts} drafts a step of which {question.acceptance:.0%} are kept"
    return (
        f"Predicted, not measured: {question.model.name} by {question.engine}{backend} on "
        f"{question.cluster.name}; {lengths}{depth}, then {question.n_gen:,} tokens{batch}"
        f"{drafts.replace('%', ' %')}."
    )


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Of the whole, from 0 to 1, in the order of LETTERS."""
    whole = sum(parts.values())
    return {name: parts.get(name, 0.0) / whole for name in LETTERS}


def cells(parts: Mapping[str, float], width: int) -> dict[str, int]:
    """How many of width characters each part has: they add up, by largest remainders."""
    exact = {name: share * width for name, share in shares(parts).items()}
    found = {name: int(value) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: found[name] - exact[name])
    for name in rest[: width - sum(found.values())]:
        found[name] += 1
    return found


def rich_bar(parts: Mapping[str, float], width: int) -> Text:
    """The bar of width characters, on a terminal with colours in them."""
    bar = Text(no_wrap=True)
    for name, count in cells(parts, width).items():
        letter, _, colour = LETTERS[name]
        bar.append(letter * count, style=f"{colour} reverse")
    return bar


def percentages(parts: Mapping[str, float]) -> str:
    """'weights 84 %, hops 9 %, dispatch 7 %': from the largest; without what is below 1 %."""
    ordered = sorted(shares(parts).items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in ordered
                     if share >= _SMALL)  # fmt: skip


def legend(predictions: Iterable[Prediction]) -> list[str]:
    """What the letters of the parts that take time in any of them stand for, a line each."""
    known = {name for one in predictions for name, seconds in one.parts.items() if seconds}
    return [f"{LETTERS[name][0]} {name}: {LETTERS[name][1]}" for name in LETTERS if name in known]
