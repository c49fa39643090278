"""What a prediction is called: never as a measurement is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nixwulf.core.text import format_interval, format_significant, plural
from nixwulf.perf.predict import Prediction

if TYPE_CHECKING:
    from nixwulf.perf.scenarios.candidates import Candidate, Question


def speed(prediction: Prediction) -> str:
    """'~15.2 (12.4 to 18.6)', tok/s with its 80 % interval."""
    return format_interval(prediction.value, prediction.low, prediction.high)


def change(before: Prediction, after: Prediction) -> str:
    """'~18.1, +19 %'."""
    return f"~{format_significant(after.value)}, {percent(after.value / before.value)}"


def percent(factor: float) -> str:
    """A factor as a change: '+19 %'."""
    return f"{100 * (factor - 1):+.0f} %".replace("-0 %", "+0 %")


def how(candidate: Candidate) -> str:
    """'2 nodes, pipeline, cable, tcp'; of one node its platform."""
    count = plural(len(candidate.nodes), "node")
    if candidate.fabric is None:
        return f"{count}, {candidate.nodes[0].platform}"
    more = f" (and {candidate.alike} alike)" if candidate.alike else ""
    name = candidate.fabric.name
    return f"{count}, {candidate.parallelism}, {name}{more}, {candidate.transport}"


def heading(question: Question) -> str:
    """What is asked, in one line."""
    lengths = f"a prompt of {question.n_prompt:,} tokens" if question.n_prompt else "no prompt"
    depth = f" behind {question.depth:,}" if question.depth else ""
    batch = f", {question.batch} sequences at once" if question.batch > 1 else ""
    return (
        f"Predicted, not measured: {question.model.name} by {question.engine} on "
        f"{question.cluster.name}; {lengths}{depth}, then {question.n_gen:,} tokens{batch}."
    )
