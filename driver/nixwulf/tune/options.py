"""Every way to run a model on a cluster for a goal, those that fit nowhere with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nixwulf.core.errors import InputError
from nixwulf.core.text import plural
from nixwulf.perf.scenarios.candidates import Candidate
from nixwulf.perf.scenarios.forecast import forecast_all
from nixwulf.perf.scenarios.text import how
from nixwulf.sweep.plan import possible
from nixwulf.sweep.sweep_file import parse_sweep
from nixwulf.tune.goals import unmeasured
from nixwulf.tune.hardware_priors import missing
from nixwulf.tune.request import ExcludedOption, Option, Request, question
from nixwulf.tune.sweeps import block, sweep_document


def options(request: Request) -> tuple[tuple[Option, ...], tuple[ExcludedOption, ...]]:
    """Ways that fit, or may, and those left out; raises InputError when none is left."""
    found: list[Option] = []
    out: list[ExcludedOption] = []
    for engine in request.engines:
        try:
            reason = unmeasured(request.goal, engine)
            ways = (
                () if reason else forecast_all(question(request, engine), missing(request.cluster))
            )
        except InputError as error:
            ways, reason = (), error.message.rstrip(".")
        if reason:
            out.append(ExcludedOption(engine, reason))
        for one in ways:
            words = _words(request, engine, one.candidate)
            room = one.plain.room
            if room.fits is False:
                reason = f"{room.short_gib:.1f} GiB too little on a node ({room.needs_gib:.1f} of "
                reason += f"{room.has_gib:.0f} GiB)"
                out.append(ExcludedOption(words, reason, room.short_gib))
            elif (
                len(one.candidate.nodes) == 1 and one.candidate.nodes[0] != request.cluster.nodes[0]
            ):
                out.append(ExcludedOption(words, "a case of one node runs on the cluster's first"))
            else:
                found.append(
                    Option(engine, one.candidate, block(request, engine, one.candidate), words)
                )
    kept, left_out = planned(request, found, out) if found else ((), tuple(out))
    if not kept:
        _refuse(request, left_out)
    return kept, left_out


def planned(
    request: Request, found: Sequence[Option], out: Sequence[ExcludedOption]
) -> tuple[tuple[Option, ...], tuple[ExcludedOption, ...]]:
    """The ways that a sweep has cases of; the others with the sweep's reason."""
    document = sweep_document(request, found, "tune", 60.0)
    cases, none = possible(parse_sweep(document, "nixwulf tune"), request.cluster)
    kept = tuple(one for one in found if any(one.is_of(case.document()) for case in cases))
    more = tuple(
        ExcludedOption(one.words, left.reason)
        for one in found
        for left in none
        if one.is_of(left.coordinates)
    )
    return kept, (*out, *more)


def first_of_each_reason(out: Sequence[ExcludedOption]) -> list[ExcludedOption]:
    """Of ways that were left out for one reason the first, whose words tell how many others."""
    by_reason: dict[str, list[ExcludedOption]] = {}
    for one in out:
        by_reason.setdefault(one.reason, []).append(one)
    return [
        replace(first, words=f"{first.words} (and {plural(len(others), 'other')})")
        if others
        else first
        for first, *others in by_reason.values()
    ]


def _words(request: Request, engine: str, candidate: Candidate) -> str:
    words = how(candidate)
    return f"{engine}, {words}" if len(request.engines) > 1 else words


def _refuse(request: Request, out: Sequence[ExcludedOption]) -> None:
    name, cluster = request.subject.model.name, request.cluster.name
    short = [one for one in out if one.short_gib]
    if short:
        least = min(short, key=lambda one: one.short_gib)
        raise InputError(
            f"{name!r} fits no way on {cluster!r}: the nearest, {least.words}, has "
            f"{least.reason}; take a smaller quantization, or more nodes."
        )
    reasons = "; ".join(f"{one.reason} ({one.words})" for one in first_of_each_reason(out))
    raise InputError(f"No way to run {name!r} on {cluster!r} for {request.goal.name}: {reasons}.")
