"""What samples of a server say of its state: pure functions, which ask, start and stop nothing.

A server that answers /health may stand still, and one that is silent may compute. So what tells is
progress: tokens, bytes on the fabric, CPU time or watts. A server is stalled when it holds a
request and none of them has moved for longer than its own record allows; whatever moves is busy,
and a busy server is never restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

State = Literal["starting", "idle", "prefilling", "decoding", "stalled", "dead"]
TROUBLED: frozenset[State] = frozenset({"stalled", "dead"})
"""The states out of which only a restart leads."""
HOUR_S = 3600.0
MOST_RESTARTS = 3
"""In an hour; whoever needs more stays down, for a person has to look."""
Canary = Literal["none", "waiting", "answered", "failed"]


@dataclass(frozen=True)
class RankSign:
    """A process of a server, as of one look.

    running: None where its node did not answer; stopped: whether a signal or a debugger holds it;
    cpu_s: CPU seconds of all that it is made of since it began.
    """

    unit: str
    node: str
    running: bool | None
    stopped: bool = False
    cpu_s: float = 0.0


@dataclass(frozen=True)
class ServerSample:
    """A server, as of one look; None is what nobody can tell.

    at: monotonic seconds. answers: whether it told its counters, or answered at all where it has
    none. prompted and generated: tokens by its counters; any other value than before is progress.
    requests: that it holds. canary: of the driver's own request, if one is on its way.
    """

    at: float
    ranks: tuple[RankSign, ...]
    answers: bool
    prompted: int | None = None
    generated: int | None = None
    requests: int | None = None
    fabric_bytes: int | None = None
    watts: float | None = None
    canary: Canary = "none"

    @property
    def held(self) -> bool:
        """Whether it has something to do: who does not answer may have."""
        return bool(self.requests) or self.canary == "waiting" or not self.answers

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """All that its counters say of tokens."""
        return self.prompted, self.generated

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of all ranks; None where a node does not tell its own."""
        if any(rank.running is None for rank in self.ranks):
            return None
        return sum(rank.cpu_s for rank in self.ranks)


@dataclass(frozen=True)
class WatchLimits:
    """When standing still is too long, seconds, and what is no progress.

    start_s: before the first answer; still_s: while a request is held; lost_s: while a node does
    not answer. least_cpu_s and least_cpu_share (of a core): CPU time that only waiting takes;
    least_bytes: what a fabric carries without work. busy_watts: more is work, and then watts tell
    in place of CPU time, which threads that wait may burn; None: watts do not tell of this case.
    """

    start_s: float = 120.0
    still_s: float = 60.0
    lost_s: float = 20.0
    least_cpu_s: float = 0.5
    least_cpu_share: float = 0.02
    least_bytes: int = 100_000
    busy_watts: float | None = None


@dataclass(frozen=True)
class Watched:
    """What is known of a server after a sample.

    why: of a troubled state, as a sentence. mark: the last sample at which something had moved, or
    at which nothing was to be done. tokens_at: when tokens last moved, or nothing was held.
    """

    state: State = "starting"
    why: str = ""
    answered: bool = False
    mark: ServerSample | None = None
    last: ServerSample | None = None
    tokens_at: float = 0.0

    @property
    def troubled(self) -> bool:
        """Whether a restart is due."""
        return self.state in TROUBLED

    @property
    def still_s(self) -> float:
        """Seconds since something moved, as of the last sample."""
        return self.last.at - self.mark.at if self.last and self.mark else 0.0


def movements(before: ServerSample, now: ServerSample, limits: WatchLimits) -> tuple[str, ...]:
    """The signs that moved between two samples: tokens, fabric, CPU, watts.

    A counter that fell is that of another request or process: it moved too.
    """
    found = []
    if any(
        old is not None and new is not None and old != new
        for old, new in zip(before.tokens, now.tokens, strict=True)
    ):
        found.append("tokens")
    carried = (before.fabric_bytes, now.fabric_bytes)
    if None not in carried and abs((carried[1] or 0) - (carried[0] or 0)) >= limits.least_bytes:
        found.append("fabric")
    if limits.busy_watts is not None and now.watts is not None:
        if now.watts > limits.busy_watts:
            found.append("watts")
    elif before.cpu_s is not None and now.cpu_s is not None:
        idle = max(limits.least_cpu_s, limits.least_cpu_share * (now.at - before.at))
        if abs(now.cpu_s - before.cpu_s) >= idle:
            found.append("CPU")
    return tuple(found)


def step(before: Watched, sample: ServerSample, limits: WatchLimits) -> Watched:
    """What is known of a server after one more sample; it was started before the first one."""
    mark = before.mark or sample
    moved = movements(mark, sample, limits)
    answered = before.answered or sample.answers
    lost = sorted({rank.node for rank in sample.ranks if rank.running is None})
    nothing_to_do = answered and not sample.held and not lost
    if moved or nothing_to_do:
        mark = sample
    tokens_at = before.tokens_at if before.mark else sample.at
    if nothing_to_do or not answered or "tokens" in moved:
        tokens_at = sample.at
    found = replace(before, answered=answered, mark=mark, last=sample, tokens_at=tokens_at, why="")
    why = _dead(sample)
    if why:
        return replace(found, state="dead", why=why)
    still = sample.at - mark.at
    if lost and still > limits.lost_s:
        return replace(
            found,
            state="dead",
            why=f"Node {lost[0]!r} does not answer, and nothing has moved for {still:.0f} s.",
        )
    if not answered:
        if still > limits.start_s:
            return replace(
                found,
                state="stalled",
                why=f"It has not answered since its start, and {_stood(sample, still, limits)}.",
            )
        return replace(found, state="starting")
    if not sample.held:
        return replace(found, state="idle")
    if why := _stalled(found, sample, limits):
        return replace(found, state="stalled", why=why)
    generated = before.last.generated if before.last else None
    more = generated is not None and sample.generated not in (None, generated)
    return replace(found, state="decoding" if more else "prefilling")


def _dead(sample: ServerSample) -> str:
    """Why a server cannot work any more, as a sentence, or nothing."""
    for rank in sample.ranks:
        if rank.running is False:
            return f"{rank.unit!r} on node {rank.node!r} has ended."
    return "It refuses the request that tries it out." if sample.canary == "failed" else ""


def _stalled(found: Watched, sample: ServerSample, limits: WatchLimits) -> str:
    """Why a server that holds a request stands still, as a sentence, or nothing."""
    without = sample.at - found.tokens_at
    for rank in sample.ranks:
        if rank.stopped and without > limits.still_s:
            return (
                f"{rank.unit!r} on node {rank.node!r} is stopped, and no token has come for "
                f"{without:.0f} s."
            )
    if found.still_s <= limits.still_s:
        return ""
    asked = "does not answer" if not sample.answers else "holds a request"
    return f"It {asked}, and {_stood(sample, found.still_s, limits)}."


def _stood(sample: ServerSample, seconds: float, limits: WatchLimits) -> str:
    """'tokens, fabric and CPU have stood still for 61 s', of the signs that there are."""
    signs = ["tokens"] if any(one is not None for one in sample.tokens) else []
    signs += ["fabric"] if sample.fabric_bytes is not None else []
    watts = limits.busy_watts is not None and sample.watts is not None
    signs.append("watts" if watts else "CPU")
    names = " and ".join(filter(None, (", ".join(signs[:-1]), signs[-1])))
    return f"{names} {'have' if len(signs) > 1 else 'has'} stood still for {seconds:.0f} s"


def stay_down(restarts: Sequence[float], now: float) -> bool:
    """Whether a server that was restarted at these times is left down instead of once more."""
    return len(recent(restarts, now)) >= MOST_RESTARTS


def recent(restarts: Iterable[float], now: float) -> list[float]:
    """The restarts of the last hour; times are seconds of one clock."""
    return [one for one in restarts if now - one < HOUR_S]
