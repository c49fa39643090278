"""What is asked of the search, and a way that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nixwulf.inventory.cluster import Cluster
from nixwulf.perf.scenarios.candidates import Candidate, Question
from nixwulf.perf.scenarios.measured import stated_links
from nixwulf.tune.goals import Goal
from nixwulf.tune.subject import ModelChoice

_TELL_APART = ("engine", "nodes", "fabric", "transport", "parallelism")


@dataclass(frozen=True)
class Request:
    """What is asked: lengths in tokens; concurrency is of throughput alone."""

    cluster: Cluster
    subject: ModelChoice
    goal: Goal
    engines: tuple[str, ...]
    n_prompt: int
    n_gen: int
    concurrency: int
    samples: int

    @property
    def batch(self) -> int:
        """Sequences at once."""
        return self.concurrency if self.goal.metric == "throughput" else 1


@dataclass(frozen=True)
class Option:
    """A way to run it, and its block in a sweep."""

    engine: str
    candidate: Candidate
    block: Mapping[str, Any]
    words: str

    @property
    def count(self) -> int:
        """Nodes."""
        return len(self.candidate.nodes)

    def is_of(self, coordinates: Mapping[str, Any]) -> bool:
        """Whether a case, or a point that is none, is about this way."""
        own = (self.block[key][0] if key in self.block else None for key in _TELL_APART)
        return all(coordinates.get(key) == one for key, one in zip(_TELL_APART, own, strict=True))


@dataclass(frozen=True)
class ExcludedOption:
    """A way that is not in the ranking, and why; of too little memory, by how much."""

    words: str
    reason: str
    short_gib: float = 0.0


def question(
    request: Request, engine: str, links: Mapping[str, Mapping[str, float]] | None = None
) -> Question:
    """As the model is asked; links by fabric as they were measured, else those of a lab."""
    return Question(
        request.cluster,
        request.subject.model,
        engine,
        request.n_prompt,
        request.n_gen,
        batch=request.batch,
        measured=stated_links(request.cluster) if links is None else links,
    )
