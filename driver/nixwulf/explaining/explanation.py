"""Records explained: for each case measured beside predicted, the bottleneck, and what is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from nixwulf.collection import PLAN, read_entries
from nixwulf.errors import InputError
from nixwulf.explaining.clues import clues, slow_links
from nixwulf.explaining.helps import Help, Setting, helps
from nixwulf.explaining.machines import facts_of
from nixwulf.explaining.one_node import calibrated, with_exchanges_of
from nixwulf.explaining.subject import METRICS, Subject, batch, fabric_of, subject_of
from nixwulf.model.constants import Constants, choose, family
from nixwulf.model.facts import PlatformFacts
from nixwulf.model.predict import Prediction, predict
from nixwulf.model.work import forward
from nixwulf.plan import read_plan
from nixwulf.record import Record
from nixwulf.table import canonical, record_rtt_us

_HALF = 0.5
_SURELY = 1.1  # bits of a weight by the name of a quantization are that far off
_OF_LINK = frozenset({"id", "fabric"})
_OF_NODES = _OF_LINK | {"nodes", "transport", "parallelism"}


@dataclass(frozen=True)
class Explained:
    """A metric of a case: tok/s measured and predicted, or in why_not what is missing.

    roof: what no machine of this kind can exceed, tok/s; none where it is not known. clues: facts
    of the record that slow it down. links: what is wrong with its link, and what that costs.
    record: the first of its runs; conditions: those of the metric.
    """

    record: Record
    conditions: Mapping[str, Any]
    metric: str
    measured: float
    runs: int
    prediction: Prediction | None = None
    helps: tuple[Help, ...] = ()
    roof: float | None = None
    clues: tuple[str, ...] = ()
    links: tuple[Help, ...] = ()
    why_not: str = ""

    @property
    def case(self) -> Mapping[str, Any]:
        """Its case."""
        case: Mapping[str, Any] = self.record["case"]
        return case

    @property
    def verdict(self) -> str:
        """In a few words; empty without a prediction."""
        told = self.prediction
        if told is None:
            return ""
        if self.roof and self.measured > _SURELY * self.roof:
            return "cannot be right"
        if self.measured > told.high:
            return "faster than predicted"
        if self.measured <= _HALF * told.low:
            return "half of it or less"
        return "slower than predicted" if self.measured < told.low else "as predicted"


@dataclass(frozen=True)
class Unmeasured:
    """A record without a speed of prompt or decode, and why."""

    case: Mapping[str, Any]
    why: str


@dataclass(frozen=True)
class _Measured:
    """A metric of all records of one case: mean of the values, tokens a second of all sequences."""

    record: Record
    conditions: Mapping[str, Any]
    metric: str
    value: float
    runs: int
    clues: tuple[str, ...]

    def but(self, keys: frozenset[str]) -> str:
        """All that it was measured under, without some keys of the case, as one text."""
        # Its price is that of the nodes of the case.
        cluster, model = self.record.get("cluster", {}).get("name"), self.record.get("model")
        case = {key: value for key, value in self.record["case"].items() if key not in keys}
        conditions = dict(self.conditions)
        return canonical(
            {
                "metric": self.metric,
                "conditions": conditions,
                "case": case,
                "cluster": cluster,
                "model": model,
            }
        )


def explain(path: Path) -> tuple[list[Explained], list[Unmeasured]]:
    """All of a record or a run folder; raises InputError for what is none."""
    entries = list(read_entries(path))
    places = {entry.path.parent.parent / PLAN for entry in entries}
    plans = {place: read_plan(place) if place.exists() else None for place in places}
    return explain_records([(e.record, plans[e.path.parent.parent / PLAN]) for e in entries])


def explain_records(
    found: Sequence[tuple[Record, Mapping[str, Any] | None]],
) -> tuple[list[Explained], list[Unmeasured]]:
    """All of records, each with the plan of its run where there is one."""
    plan_of = {id(record): plan for record, plan in found}
    measured, rest = _measured([record for record, _ in found])
    alike: defaultdict[str, list[_Measured]] = defaultdict(list)
    for one in measured:
        alike[one.but(_OF_NODES)].append(one)
    told = [_explained(one, alike[one.but(_OF_NODES)], plan_of[id(one.record)]) for one in measured]
    return sorted(told, key=_order), rest


def _order(told: Explained) -> tuple[str, str, int, str, str]:
    """Alike cases beside each other, fewest nodes first."""
    case = told.case
    split, fabric = case.get("parallelism", ""), case.get("fabric", "")
    return case.get("model", ""), case.get("engine", ""), case["nodes"], split, fabric


def _measured(records: Sequence[Record]) -> tuple[list[_Measured], list[Unmeasured]]:
    groups: defaultdict[tuple[str, str, str], list[tuple[Record, Mapping[str, Any], float]]]
    groups = defaultdict(list)
    rest = []
    for record in records:
        found = False
        for metric in record.get("metrics", ()):
            if metric["name"] in METRICS and metric["unit"] == "tok/s":
                found = True
                conditions = metric["conditions"]
                # The decode of a server is that of each of its requests.
                times = _requests(record, conditions)
                key = (_whose(record), metric["name"], canonical(dict(conditions)))
                groups[key].append((record, conditions, times * metric["value"]))
        if not found:
            rest.append(Unmeasured(record["case"], _why(record)))
    return [
        _Measured(
            seen[0][0],
            seen[0][1],
            name,
            fmean(value for _, _, value in seen),
            len(seen),
            tuple(dict.fromkeys(text for record, _, _ in seen for text in clues(record))),
        )
        for (_, name, _), seen in groups.items()
    ], rest


def _requests(record: Record, conditions: Mapping[str, Any]) -> int:
    try:
        return batch(conditions) if record["case"]["benchmark"] == "serve" else 1
    except InputError:
        return 1  # and then nothing is predicted


def _whose(record: Record) -> str:
    """Runs of one case on one cluster are one; of other numbers each record stands for itself."""
    if record["kind"] != "run":
        return str(record["id"])
    return f"{record['case']['id']} {record.get('cluster', {}).get('name')}"


def _why(record: Record) -> str:
    if record["outcome"] == "ok":
        return "It measured no prompt and no decode in tok/s."
    failure = record.get("failure", {})
    said = " ".join(filter(None, (failure.get("reason"), failure.get("hint"))))
    return f"It ended {record['outcome']!r}, so there is no speed to explain. {said}".strip()


def _explained(
    one: _Measured, others: Sequence[_Measured], plan: Mapping[str, Any] | None
) -> Explained:
    bare = Explained(one.record, one.conditions, one.metric, one.value, one.runs, clues=one.clues)
    try:
        subject = subject_of(one.record, plan)
        setting = _setting(one, subject, others)
    except InputError as error:
        return replace(bare, why_not=error.message)
    prediction = predict(
        setting.platforms,
        setting.model,
        setting.way,
        setting.fabric,
        metric=one.metric,
        constants=setting.constants,
    )
    roof = _roof(setting) if subject.platforms else None
    links = tuple(
        Help(text, replace(setting, fabric=mended).speed() / prediction.value)
        for text, mended in slow_links(one.record)
    )
    return replace(bare, prediction=prediction, helps=helps(setting), roof=roof, links=links)


def _setting(one: _Measured, subject: Subject, others: Sequence[_Measured]) -> Setting:
    if one.metric == "decode" and "n_gen" not in one.conditions and batch(one.conditions) > 1:
        raise InputError("The lengths of several sequences at once are not told.")
    way = subject.way(one.conditions)
    if one.record["kind"] != "run" and way.batch > 1:
        raise InputError(
            "Of several sequences at once it is not told whether it is of each or all."
        )
    platforms, constants = _machines(one, subject, others)
    if one.metric == "prompt":
        if not way.n_prompt:
            raise InputError("The record lacks the length of the prompt.")
        slow = next((node.name for node in platforms if not node.tflops), "")
        if slow:
            raise InputError(f"The compute_tflops of {slow!r} are not known.")
    return Setting(platforms, subject.model, way, subject.fabric, constants, one.metric)


def _machines(
    one: _Measured, subject: Subject, others: Sequence[_Measured]
) -> tuple[tuple[PlatformFacts, ...], Constants]:
    way = subject.way(one.conditions)
    if subject.platforms:
        kind = subject.platforms[0].kind
        return subject.platforms, choose(family(way, kind), kind)
    platform = one.record["nodes"][0]["platform"]
    if subject.nodes == 1:
        raise InputError(
            f"Nobody published facts of {platform!r}: this speed of one node is what several "
            "nodes are held against."
        )
    alone = [one.value for one in others if one.record["case"]["nodes"] == 1]
    if not alone:
        raise InputError(
            f"Nobody published facts of {platform!r}, and one node was not measured in this run "
            "with the same parameters; add nodes: [1] to the sweep."
        )
    node, constants = calibrated(platform, subject.model, way, one.metric, fmean(alone))
    other = _on_another_fabric(one, others)
    if other is not None:
        link = fabric_of(other.record)
        if link is not None:
            constants = with_exchanges_of(
                constants, node, subject.nodes, subject.model, way, link, one.metric, other.value
            )
            name = other.record["case"]["fabric"]
            own = one.record["case"]["fabric"]
            said = f"{platform}: the host's time for an exchange on {own!r} is as on {name!r} in it"
            node = replace(node, assumptions=(*node.assumptions, said))
    return (node,) * subject.nodes, constants


def _on_another_fabric(one: _Measured, others: Sequence[_Measured]) -> _Measured | None:
    """The same case on that other fabric of the run that has the shortest round trip, or none."""
    case = one.but(_OF_LINK)
    same = [
        other
        for other in others
        if other is not one and other.value > 0 and other.but(_OF_LINK) == case
    ]
    return min(same, key=lambda other: record_rtt_us(other.record) or inf, default=None)


def _roof(setting: Setting) -> float | None:
    """Tokens a second when nothing takes time but what the hardware alone has to do.

    By the nominal bandwidth, where it is more than what was measured. None for a batch whose
    experts are not known: how many of them it reads is a guess.
    """
    nodes, way = len(setting.platforms), setting.way
    if setting.metric == "decode" and way.batch > 1 and setting.model.routed:
        return None
    prompt = setting.metric == "prompt"
    tokens = way.n_prompt if prompt else way.batch
    work = forward(
        [_at_its_best(node) for node in setting.platforms],
        setting.model,
        setting.fabric,
        way,
        tokens=tokens,
        sequences=way.batch,
        depth=way.depth,
    )
    # Prompts of a pipeline can be on all nodes at once; one sequence is on one at a time.
    several = nodes if prompt and way.parallelism == "pipeline" else 1
    seconds = work.compute if prompt else work.weights + work.cache
    return several * tokens / seconds if seconds else None


def _at_its_best(node: PlatformFacts) -> PlatformFacts:
    nominal = (facts_of(node.name) or {}).get("memory_bandwidth_nominal_gbs", {}).get("value", 0.0)
    return replace(node, bandwidth_gbs=max(node.bandwidth_gbs, nominal))
