"""Outcome of a repeat: measured beside published and predicted, and where it is off, why.

What may have slowed it are its facts beside those of the record that it repeats: one that both have
alike is no cause, and each cause has the command that looks closer. On a terminal that is the
table, then for each slow case its causes and commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nixwulf.core.document import Cell, Column, Table, output, rich_table, say
from nixwulf.core.metric import better, speed_of
from nixwulf.core.text import GIB, as_typed, format_significant, link_name, plural
from nixwulf.llm import Model
from nixwulf.perf.explain.diagnostics import LINK_KEYS, diagnostics, is_busy
from nixwulf.perf.explain.explanation import Explained, explain_records
from nixwulf.perf.predict import Prediction
from nixwulf.plugins.runtime.case import Case
from nixwulf.results.compare.interval import Interval, ratio_interval
from nixwulf.results.identity import canonical
from nixwulf.results.record import Record, RecordedMetric
from nixwulf.results.table import record_bandwidth_gbps, record_rtt_us
from nixwulf.sweep.plan import Plan
from nixwulf.sweep.reproduce.conditions import Expectation, expectations, metrics_of

INSIDE, SLOWER, FASTER, MISSING = "inside", "slower", "faster", "not measured"
_RUNS = 3
Explanations = Mapping[tuple[str, str, str], Explained]


@dataclass(frozen=True)
class Repeat:
    """A number and its repeat, None where it was not measured: why_not says why.

    ratio: of the speeds, repeat over record, with its interval of 95 %.
    """

    expected: Expectation
    verdict: str
    case: Case | None = None
    measured: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    predicted: Prediction | None = None
    causes: tuple[Cause, ...] = ()
    why_not: str = ""


def repeats(plan: Plan, records: Sequence[Record]) -> list[Repeat]:
    """All that a plan's sweep expects, in its order; raises InputError for a bad 'expect'."""
    document = {"sweep": {"document": plan.sweep.document}}
    explained, _ = explain_records([(record, document) for record in records])
    explanations: Explanations = {
        (one.case["id"], one.metric, canonical(one.conditions)): one for one in explained
    }
    return [
        repeat
        for expected in expectations(plan.sweep)
        for repeat in _of(expected, plan, records, explanations)
    ]


def _of(
    expected: Expectation, plan: Plan, records: Sequence[Record], explanations: Explanations
) -> Iterator[Repeat]:
    cases = [case for case in plan.cases if expected.of(case)]
    if not cases:
        yield Repeat(expected, MISSING, why_not=_left_out(expected, plan))
    for case in cases:
        own = [record for record in records if record["case"]["id"] == case.id]
        good = [record for record in own if record["outcome"] == "ok"]
        found = [
            (record, metric)
            for record in good
            for metric in metrics_of(record, expected.metric, expected.conditions)
            if metric["unit"] == expected.unit
        ]
        if not found:
            reasons = [r["failure"]["reason"] for r in own if r["outcome"] != "ok"]
            why = reasons[0] if reasons else "it has not run yet" if not own else "no such metric"
            yield Repeat(expected, MISSING, case, why_not=why)
        else:
            yield _repeat(expected, plan, case, found, explanations)


def _repeat(
    expected: Expectation,
    plan: Plan,
    case: Case,
    found: Sequence[tuple[Record, RecordedMetric]],
    explanations: Explanations,
) -> Repeat:
    """The metrics of a case that ran beside the expected one; causes are the last record's."""
    key = (case.id, expected.metric, canonical(found[0][1]["conditions"]))
    verdict, ratio, interval = _verdict(expected, [metric for _, metric in found])
    explained = explanations.get(key)
    slowed: Iterable[Cause] = ()
    if verdict == SLOWER:
        model = plan.sweep.models.get(case.model or "")
        costless = explained.costless if explained else ()
        source = shlex.quote(plan.cluster.source)
        slowed = causes(found[-1][0], expected.references[0], model, source, costless)
    return Repeat(
        expected,
        verdict,
        case,
        speed_of(metric["value"] for _, metric in found),
        ratio,
        interval,
        explained.prediction if explained else None,
        tuple(slowed),
    )


def _verdict(
    expected: Expectation, metrics: Sequence[RecordedMetric]
) -> tuple[str, float, Interval | None]:
    """Outside: beyond the tolerance, and shown to differ where there is an interval."""
    sides = (expected.samples, [[*one.get("samples", ())] or [one["value"]] for one in metrics])
    values = (expected.value, speed_of(one["value"] for one in metrics))
    if better(expected.metric, expected.unit) == "less":
        sides, values = (sides[1], sides[0]), (values[1], values[0])
    ratio = values[1] / values[0]
    # The tolerance is for what differs between the two days.
    before, now = (
        # Two runs tell nothing of how runs differ: their samples are then taken as of one.
        {"": list(runs) if len(runs) >= _RUNS else [[one for run in runs for one in run]]}
        for runs in sides
    )
    interval = ratio_interval(before, now, distribution=False)
    shown = interval is None or interval.shows_difference
    if not shown or abs(ratio - 1) <= expected.tolerance:
        return INSIDE, ratio, interval
    return FASTER if ratio > 1 else SLOWER, ratio, interval


def _left_out(expected: Expectation, plan: Plan) -> str:
    """The reason for which the plan lacks its case, of the point that is most like it."""
    of = expected.references[0]["case"]
    known = {key: of[key] for key in ("nodes", "parallelism", "transport") if key in of}
    asked = {**known, **expected.case, **expected.case.get("parameters", {})}
    asked.pop("parameters", None)
    points = [({**left.what, **left.what["parameters"]}, left.reason) for left in plan.left_out]
    likeness = [(sum(p.get(k) == v for k, v in asked.items()), why) for p, why in points]
    return max(likeness, default=(0, "the sweep has no such case"), key=lambda one: one[0])[1]


_RATE = 0.5
_TRIPS, _TRIP_US = 1.5, 100.0
_SIZE = 0.02
_CLOCK = 0.9
_SCARCE, _FAR = 0.55, 0.25
_OTHER = 0.9
"""What a difference of unknown effect is taken to cost, to sort by."""
_COMPARED = {"quota", "affinity", "load", "threads", *LINK_KEYS}
"""Diagnostics whose facts are held against the record's here."""


@dataclass(frozen=True)
class Cause:
    """A sentence without its full stop, the command to look closer, and what it may leave.

    left: the share of its speed that a case which depends on this alone keeps, to sort by.
    """

    what: str
    command: str
    left: float


def causes(
    record: Record,
    reference: Record,
    model: Model | None = None,
    source: str = "FILE",
    costless: Collection[str] = (),
) -> list[Cause]:
    """The facts that may have slowed a run, the likeliest first.

    model: as the sweep names it, with its sha256 where that is known. costless: what the speed of
    the case does not depend on: sentences of diagnostics, and of the link 'rate' and 'trips'.
    """
    known = {one.text for one in diagnostics(reference)}
    cpus = [*_limits(record, reference), *_load(record)]
    starved = min((cause.left for cause in cpus if cause.left <= _SCARCE), default=0.0)
    found = [
        *cpus,
        *_threads(record, reference),
        # A lack of CPUs delays packets too: the link is after it, unless it is far worse.
        *(link if link.left < _FAR * starved else replace(link, left=max(link.left, starved))
          for link in _link(record, reference, source, costless)),
        *_model(record, reference, model),
        *_engine(record, reference, source),
        *_clocks(record, reference),
        *(Cause(one.text.rstrip("."), f"nixwulf preflight --cluster {source}", _OTHER)
          for one in diagnostics(record)
          if one.key not in _COMPARED and one.text not in {*known, *costless}),
    ]  # fmt: skip
    return sorted(found, key=lambda cause: cause.left)


def _facts(record: Record) -> dict[str, dict[str, float]]:
    """The facts of each node that are numbers."""
    return {
        node["name"]: {k: v for k, v in node.get("facts", {}).items() if isinstance(v, int | float)}
        for node in record.get("nodes", ())
    }


def _limits(record: Record, reference: Record) -> Iterator[Cause]:
    """Fewer CPUs than there are, or than before."""
    before = list(_facts(reference).values())
    for key, words, command in (
        ("cpu_quota", "a CPU quota allows", "grep . /sys/fs/cgroup/cpu.max"),
        ("cpus_allowed", "its processes may run on", "taskset -pc $$"),
    ):
        was = min((float(facts[key]) for facts in before if key in facts), default=None)
        for name, facts in _facts(record).items():
            if key in facts and (was is None or facts[key] < was):
                all_of_them = was or float(facts["cpus"])
                text = f"{words} {facts[key]:g} of {facts['cpus']} CPUs on node {name!r}"
                yield Cause(text, f"ssh {name} '{command}'", facts[key] / all_of_them)
                break  # one node is enough: the others wait for it


def _load(record: Record) -> Iterator[Cause]:
    """CPUs that others used."""
    loads = ((facts.get("busy_cpus", 0), name) for name, facts in _facts(record).items())
    busy, name = max(loads, default=(0, ""))
    count = _facts(record).get(name, {}).get("cpus", 0)
    if is_busy(busy, count):
        text = f"other load: {busy:g} of {count} CPUs of node {name!r} were busy before the run"
        yield Cause(text, f"ssh {name} 'top -bn1 | head -15'", count / (count + busy))


def _threads(record: Record, reference: Record) -> Iterator[Cause]:
    for now, before in zip(record["metrics"], reference["metrics"], strict=False):
        threads, were = (one["conditions"].get("n_threads", 0) for one in (now, before))
        if 0 < threads < were:
            text = f"it computed with {threads} threads, the record with {were}"
            yield Cause(text, "nixwulf explain RECORD", threads / were)
            return


def _link(
    record: Record, reference: Record, source: str, costless: Collection[str]
) -> Iterator[Cause]:
    name = record.get("fabric", {}).get("name", "")
    test = f"nixwulf bench links --cluster {source}"
    rate, rated = record_bandwidth_gbps(record), record_bandwidth_gbps(reference)
    if rate and rated and rate < _RATE * rated and "rate" not in costless:
        carried, before = map(format_significant, (rate, rated))
        text = f"{name!r} carried {carried} Gbit/s, for the record {before}"
        yield Cause(text, test, rate / rated)
    trip, was = record_rtt_us(record), record_rtt_us(reference)
    if trip and was and trip > max(_TRIPS * was, was + _TRIP_US) and "trips" not in costless:
        took, before = map(format_significant, (trip, was))
        text = f"a round trip on {name!r} took {took} us, for the record {before}"
        yield Cause(text, test, was / trip)
    if rated is None:
        for one in diagnostics(record):
            if one.key in LINK_KEYS and one.text not in costless:
                yield Cause(one.text.rstrip("."), test, _RATE)
    yield from _other_fabric(record.get("fabric", {}), reference.get("fabric", {}), source)


def _other_fabric(
    now: Mapping[str, object], before: Mapping[str, object], source: str
) -> Iterator[Cause]:
    """Say what a fabric's file says less of than that of the record's."""
    name = now.get("name", "")
    for key, unit in (("kind", ""), ("speed_gbps", " Gbit/s"), ("mtu", " bytes of MTU")):
        new, old = now.get(key), before.get(key)
        if not new or not old or new == old:
            continue
        share = new / old if isinstance(new, int | float) and isinstance(old, int | float) else 0.0
        if share < 1:  # or of another kind
            text = f"{name!r} has {new}{unit}, the record's fabric {old}{unit}"
            left = share if key == "speed_gbps" else _OTHER
            yield Cause(text, f"nixwulf preflight --cluster {source}", left)


def _model(record: Record, reference: Record, model: Model | None) -> Iterator[Cause]:
    now, before = record.get("model", {}), reference.get("model", {})
    path = now.get("file", now.get("name", "MODEL"))
    known = (model.sha256 if model else None) or before.get("sha256")
    size, was = now.get("bytes", 0), before.get("bytes", 0)
    if known and now.get("sha256", known) != known:
        text = "the model is another file than the record's, by its sha256"
        yield Cause(text, f"sha256sum {path}", min(_OTHER, was / size if size and was else 1))
    elif size and was and abs(size / was - 1) > _SIZE:
        text = f"the model has {size / GIB:.3g} GiB, the record's {was / GIB:.3g}"
        yield Cause(f"{text}: another quantization or model", f"ls -l {path}", was / size)
    elif now.get("weights") and before.get("weights", now["weights"]) != now["weights"]:
        text = f"its weights are {now['weights']}, the record's {before['weights']}"
        yield Cause(text, f"ls -l {path}", _OTHER)


def _engine(record: Record, reference: Record, source: str) -> Iterator[Cause]:
    now, before = record.get("engine", {}), reference.get("engine", {})
    name, look = now.get("name", "the engine"), f"nixwulf preflight facts --cluster {source}"
    lacking = {*before.get("backends", "").split(",")} - {*now.get("backends", "").split(",")}
    if now.get("backends") and lacking - {""}:
        text = f"its back ends are {now['backends']}, the record's {before['backends']}"
        yield Cause(text, look, _OTHER)
    key = next((key for key in ("build_commit", "version") if {key} <= now.keys() & before), "")
    if key and not (now[key].startswith(before[key]) or before[key].startswith(now[key])):
        text = f"{name} is {_build(now)}, for the record {_build(before)}"
        yield Cause(text, look, _OTHER)


def _build(engine: Mapping[str, str]) -> str:
    return engine.get("version") or engine["build_commit"]


def _clocks(record: Record, reference: Record) -> Iterator[Cause]:
    """The lowest mean clock of each unit: the processor and each GPU."""
    before = _mhz(reference)
    for unit, (mhz, name) in _mhz(record).items():
        was, _ = before.get(unit, (0.0, ""))
        if mhz < _CLOCK * was:
            text = (
                f"the clock of {unit} on node {name!r} was {mhz:.0f} MHz, for the record {was:.0f}"
            )
            yield Cause(text, f"ssh {name} 'grep MHz /proc/cpuinfo'", mhz / was)


def _mhz(record: Record) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    for name, node in record.get("power", {}).get("nodes", {}).items():
        for unit, clock in node.get("mhz", {}).items():
            found[unit] = min(found.get(unit, (clock["average"], name)), (clock["average"], name))
    return found


_MOST_CAUSES = 4
_STYLES = {INSIDE: "good", SLOWER: "bad", MISSING: "warning", FASTER: "warning"}


def to_terminal(repeats: Sequence[Repeat], folder: str) -> None:
    """Print what a run in a folder came to."""
    console = output()
    sources = {repeat.expected.references[0]["kind"] for repeat in repeats}
    before = Column("published" if "published" in sources else "earlier run", number=True)
    columns = [*_COLUMNS[:2], before, *_COLUMNS[2:]]
    console.print(rich_table(Table(columns, [_row(repeat) for repeat in repeats])))
    for text in dict.fromkeys(_sentences(repeat, folder) for repeat in repeats):
        if text:
            say(console, text)
    inside = sum(repeat.verdict == INSIDE for repeat in repeats)
    say(console, f"{inside} of {plural(len(repeats), 'number')} inside the tolerance.")


_COLUMNS = (
    Column("what"),
    Column("measured", number=True),
    Column("predicted", number=True),
    Column("ratio", number=True, whole=True),
    Column("verdict", whole=True),
)


def expected(repeats: Sequence[Repeat], plan: Plan) -> None:
    """Print what a dry run would hold its cases against, and how its models are had."""
    console = output()
    rows = [
        [
            what(one.expected, one),
            f"{format_significant(one.expected.value)} {one.expected.unit}",
            f"{one.expected.tolerance:.0%}",
            one.case.id if one.case else f"none: {one.why_not}",
        ]
        for one in repeats
    ]
    columns = ("what", Column("published", number=True), Column("tolerance", number=True), "case")
    console.print(rich_table(Table(columns, rows)))
    unset = {
        f"{key} {value}": None
        for one in repeats
        for key, value in one.expected.references[0]["case"]["parameters"].items()
        if one.case and key not in one.case.parameters
    }
    if unset:
        say(console, f"Of the records' conditions nothing here sets: {', '.join(unset)}.")
    for name in dict.fromkeys(case.model for case in plan.cases if case.model):
        model = plan.sweep.models[name]
        if model.path and model.hub:
            own = re.sub("-00001-of-.*", "-*", PurePosixPath(model.path).name)
            hub, file = shlex.quote(model.hub), shlex.quote(f"*{own}")
            check = f" --sha256 {model.sha256}" if model.sha256 else ""
            say(console, f"{name}: nixwulf models get {hub} --only {file}{check}")
    missing = sum(one.case is None for one in repeats)
    planned = f"{len(repeats) - missing} of {plural(len(repeats), 'number')}"
    say(console, f"{planned} can be repeated on {plan.cluster.name!r}.")


def document(repeat: Repeat) -> dict[str, object]:
    """A number and its repeat as JSON; values are in the unit of the metric."""
    one, interval, predicted = repeat.expected, repeat.interval, repeat.predicted
    return {
        "records": [record["id"] for record in one.references],
        **{key: getattr(one, key) for key in ("metric", "unit", "tolerance", "conditions")},
        "case": repeat.case and repeat.case.document(),
        "published": one.value,
        "measured": repeat.measured,
        "predicted": predicted and predicted.value,
        "ratio": repeat.ratio,
        "ratio_interval": interval and [interval.low, interval.high],
        **{key: getattr(repeat, key) for key in ("verdict", "why_not", "causes")},
    }


def _row(repeat: Repeat) -> list[str | Cell]:
    expected, interval = repeat.expected, repeat.interval
    ratio = "" if repeat.ratio is None else f"{repeat.ratio:.2f}"
    if interval:
        ratio += f" ({interval.low:.2f} to {interval.high:.2f})"
    return [
        what(expected, repeat),
        "" if repeat.measured is None else format_significant(repeat.measured),
        f"{format_significant(expected.value)} {expected.unit}",
        f"~{format_significant(repeat.predicted.value)}" if repeat.predicted else "",
        ratio,
        Cell(repeat.verdict, style=_STYLES[repeat.verdict]),
    ]


def what(expected: Expectation, repeat: Repeat | None = None) -> str:
    """'minimax-m2, 2 nodes, tensor, lan, decode' by the case, else by the record."""
    of = expected.references[0]["case"]
    case = repeat.case.document() if repeat and repeat.case else of
    link = link_name(case.get("fabric", ""), case.get("transport", ""))
    lengths = [
        f"{key} {value}" for key, value in expected.conditions.items() if value and key != "n_gen"
    ]
    parts = (
        case.get("model") or case["benchmark"],
        plural(case["nodes"], "node"),
        case.get("parallelism", "") if case["nodes"] > 1 else "",
        link,
        expected.metric,
        *[text for text in lengths if text.startswith(("n_prompt", "n_depth", "direction"))],
    )
    return ", ".join(filter(None, parts))


def _sentences(repeat: Repeat, folder: str) -> str:
    name = what(repeat.expected, repeat).rpartition(f", {repeat.expected.metric}")[0]
    if repeat.verdict == MISSING:
        return f"{name} was not measured: {repeat.why_not.rstrip('.')}."
    if repeat.verdict == FASTER:
        return f"{name} is faster than published: are the model and the lengths the same?"
    if repeat.verdict == INSIDE:
        return ""
    if not repeat.causes:
        look = f"nixwulf explain {shlex.quote(str(folder))}"
        return f"{name} is slower: no recorded fact explains it. Next: {look}"
    lines = [
        f"{'Likely cause' if first else 'Also'}: {cause.what}. Next: {cause.command}"
        for first, cause in zip((True, *[False] * _MOST_CAUSES), repeat.causes, strict=False)
    ]
    return "\n  ".join([f"{name} is slower.", *lines])


def list_repeatable(found: Iterable[tuple[Record, Plan | str]], cluster: str) -> None:
    """Print the published records that a cluster could repeat, and how many not, by reason."""
    console = output()
    rows, reasons = [], dict[str, int]()
    for record, plan in found:
        if isinstance(plan, str):
            reasons[plan] = reasons.get(plan, 0) + 1
            continue
        best = record["metrics"][0]
        number = f"{format_significant(best['value'])} {best['unit']}"
        rows.append([record["id"], str(record["case"]["nodes"]), best["name"], number])
    if rows:
        columns = (Column("record", whole=True), Column("nodes", number=True), "metric",
                   Column("published", number=True))  # fmt: skip
        console.print(rich_table(Table(columns, rows)))
    for reason, count in sorted(reasons.items(), key=lambda one: -one[1]):
        say(console, f"{plural(count, 'record')} of these machines left out: {reason.rstrip('.')}.")
    if rows:
        say(console, f"Repeat one by {as_typed('reproduce', 'RECORD', '--cluster', cluster)}.")
    else:
        say(console, "No published record is of this cluster's machines.")
