"""Which way to measure next, and when to stop: pure decisions over what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nixwulf.tune.posterior import Estimate

USED_UP = "the budget is used up"


@dataclass(frozen=True)
class Ranked:
    """A way while the search goes on: seconds are what measuring it should take."""

    estimate: Estimate
    seconds: float
    single: bool
    engine: str
    measured: bool = False
    out: str = ""
    """Why it is out of the search, such as how its run failed; empty: it is not."""

    @property
    def open(self) -> bool:
        """Whether it can still be measured."""
        return not self.measured and not self.out


@dataclass(frozen=True)
class Decision:
    """The way to measure next, by its place; None: stop, and why."""

    next: int | None
    why: str


def best(ranked: Sequence[Ranked]) -> int | None:
    """The fastest that was measured."""
    done = [n for n, one in enumerate(ranked) if one.measured]
    return max(done, key=lambda n: ranked[n].estimate.value, default=None)


def contenders(ranked: Sequence[Ranked]) -> list[int]:
    """Ways to measure that could be best: above the low end of the leader, quickest first."""
    alive = [one for one in ranked if not one.out]
    if not alive:
        return []
    leader = max(alive, key=lambda one: one.estimate.value)
    least = leader.estimate.value if leader.measured else leader.estimate.low
    done = best(ranked)
    if done is not None:
        least = max(least, ranked[done].estimate.value)
    could = [
        n
        for n, one in enumerate(ranked)
        if one.open and (one is leader or one.estimate.high > least)
    ]
    return sorted(could, key=lambda n: (ranked[n].seconds, n))


def order(ranked: Sequence[Ranked]) -> list[int]:
    """Contenders in the order of measuring: one node of an engine comes first, for it calibrates.

    It does so even where it could not be best itself.
    """
    could = contenders(ranked)
    known = {one.engine for one in ranked if one.measured}
    unknown = {ranked[n].engine for n in could} - known
    first = [n for n, one in enumerate(ranked) if one.open and one.single and one.engine in unknown]
    return [*first, *(n for n in could if n not in first)]


def decide(ranked: Sequence[Ranked], left_s: float) -> Decision:
    """The next way within the time that is left."""
    queue = order(ranked)
    if not queue:
        if best(ranked) is None:
            return Decision(None, "no way could be measured")
        return Decision(None, "the best measured one is above the high end of all others")
    for n in queue:
        if ranked[n].seconds <= left_s:
            return Decision(n, "")
    return Decision(None, USED_UP)
