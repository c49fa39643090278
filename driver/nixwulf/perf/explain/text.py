"""Explanations in short sentences with units: on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from nixwulf.core.document import escaped, output, say
from nixwulf.core.files import as_json, titled
from nixwulf.core.text import format_significant, plural
from nixwulf.perf.explain.explanation import Explained, WeighedDiagnostic
from nixwulf.perf.explain.measured import Unmeasured
from nixwulf.perf.explain.remedies import Remedy, Sensitivity
from nixwulf.perf.explain.subject import newer_than_fitted
from nixwulf.perf.predict import Prediction
from nixwulf.perf.scenarios import render

NOTICED = "Noticed"
"""Begins what is odd in a record of a speed that is not low; once a case is enough."""


def case(explained: Explained) -> str:
    """'tiny, 2 nodes, tensor, gbe5, tcp'."""
    one = explained.case
    model, engine = one.get("model", "no model named"), one.get("engine", "no engine named")
    link = [one[key] for key in ("parallelism", "fabric", "transport") if key in one]
    several = one["nodes"] > 1
    nodes = plural(one["nodes"], "node")
    return f"{model} by {engine}, {', '.join([nodes, *link] if several else [nodes])}"


def measured(explained: Explained) -> str:
    """'measured 46.0, predicted ~27.3 (14.3 to 52.2) tok/s: as predicted'."""
    runs = f" (mean of {explained.runs} runs)" if explained.runs > 1 else ""
    text = f"measured {format_significant(explained.measured)}{runs}"
    if explained.prediction is None:
        return f"{text} tok/s"
    return f"{text}, predicted {explained.prediction.text} tok/s: {explained.verdict}"


def sentences(explained: Explained) -> Iterator[str]:
    """Sentences beside the numbers."""
    if newer := newer_than_fitted(explained.record):
        yield newer
    if explained.prediction is None:
        yield explained.why_not
        yield from _of_causes(explained)
        yield from _of_remedies(explained.remedies)
        return
    yield from _flags(explained)
    yield from _of_causes(explained)
    if explained.unexplained:
        yield _unexplained(explained, explained.prediction)
    yield from advice(explained)


def advice(explained: Explained) -> Iterator[str]:
    """Faster ways, the bottleneck, what would help and what not; nothing without a prediction."""
    if explained.prediction is None:
        return
    yield from _of_remedies(explained.remedies)
    parts = render.shares(explained.prediction.parts)
    # Faster computing is no help where reading the weights meanwhile takes as long.
    vain = any("the compute" in o.what and o.factor < _ANY for o in explained.sensitivities)
    named = {name: part for name, part in parts.items() if name != "compute" or not vain} or parts
    largest = max(named, key=lambda name: named[name])
    what = render.LETTERS[largest][1]
    yield f"Bottleneck: {what}, {100 * parts[largest]:.0f} % of the predicted time."
    good = [one for one in explained.sensitivities if one.enough]
    yield f"Would help: {_list(good)}." if good else "No single change gains 5 %. Tried:"
    useless = [one for one in explained.sensitivities if not one.enough]
    if useless:
        yield f"Would not: {_list(useless)}." if good else f"{_list(useless)}."


def _flags(explained: Explained) -> Iterator[str]:
    prediction = explained.prediction
    if prediction is None:
        return
    ratio = explained.measured / prediction.value
    if explained.verdict == "cannot be right":
        yield (
            f"Cannot be right: {format_significant(explained.measured)} tok/s is above "
            f"{format_significant(explained.roofline or 0)}, the hardware's peak; check the "
            "model, its quantization, the number of sequences and speculative decoding."
        )
    elif explained.measured < prediction.low:
        much = "at most half of the interval's low end" if explained.measured <= (
            prediction.low / 2
        ) else "less than predicted"  # fmt: skip
        yield f"Slow: {100 * ratio:.0f} % of the prediction, {much}."
    elif explained.measured > prediction.high:
        where = "at" if explained.roofline and explained.measured > explained.roofline else "below"
        roofline = (
            f", and {where} {format_significant(explained.roofline)}, the hardware's peak"
            if explained.roofline
            else ""
        )
        yield f"Fast: {format_significant(ratio)} times the prediction{roofline}."


def _of_causes(explained: Explained) -> Iterator[str]:
    slower = "May explain it" if explained.is_slow else "May slow it"
    for cause in explained.slows:
        name = "Slow link" if cause.diagnostic.included else slower
        yield f"{name}: {cause.diagnostic.text}{_without(cause)}"
    for cause in explained.noticed:
        yield f"{NOTICED}: {cause.diagnostic.text}{_without(cause)}"


def _without(cause: WeighedDiagnostic) -> str:
    if cause.known is None or not cause.diagnostic.slows:
        return ""
    most = "at most " if cause.diagnostic.most else ""
    return f" Without that: {most}{render.percent(cause.known)}."


def _unexplained(explained: Explained, prediction: Prediction) -> str:
    """Say which factor is left, and where to look next."""
    fast = explained.measured > prediction.high
    ratio = explained.mended / prediction.value
    left = (
        f"{format_significant(ratio if fast else 1 / ratio)} times {'faster' if fast else 'slower'}"
    )
    even = "even without that " if explained.mended > explained.measured else ""
    cluster = shlex.quote(explained.cluster_file or "FILE")
    where = f"nixwulf preflight --cluster {cluster}"
    if fast or explained.record["kind"] != "run":
        what = "RUN" if explained.record["kind"] == "run" else shlex.quote(explained.record["id"])
        where = f"nixwulf reproduce {what} --cluster {cluster}"
    return (
        f"Not explained: {even}it is {left} than predicted, outside the interval, and no fact of "
        f"the record shows why. Next: {where}"
    )


def _of_remedies(remedies: Sequence[Remedy]) -> Iterator[str]:
    """The cheapest in a sentence of its own; what it stands on is said of each."""
    if not remedies:
        return
    first, *others = map(_remedy, remedies)
    yield f"Cheapest remedy: {first}."
    if others:
        yield f"Also faster: {'; '.join(others)}."


def _remedy(one: Remedy) -> str:
    source = "measured in these records" if one.measured else "predicted"
    sign = "" if one.measured else "~"
    number = f"{sign}{format_significant(one.speed)} tok/s"
    costs = (
        f", and {render.percent(one.costs)} for the other of prompt and decode" if one.costs else ""
    )
    return f"{one.what}, {number}, {source} ({render.percent(one.factor)}{costs})"


def _list(sensitivities: list[Sensitivity]) -> str:
    return ", ".join(f"{one.what} {render.percent(one.factor)}" for one in sensitivities)


def labels(explained: Sequence[Explained]) -> list[str]:
    """'decode', and where there are several of a case 'decode (n_depth 4096, threads 2)'."""
    seen: defaultdict[tuple[str, str], defaultdict[str, set[str]]]
    seen = defaultdict(lambda: defaultdict(set))
    for one in explained:
        for key, value in _under(one).items():
            seen[case(one), one.metric][key].add(str(value))
    counts = Counter((case(one), one.metric) for one in explained)
    found = []
    for one in explained:
        varied = [key for key, values in seen[case(one), one.metric].items() if len(values) > 1]
        differ = ", ".join(f"{k} {v}" for k, v in _under(one).items() if k in varied)
        several = differ and counts[case(one), one.metric] > 1
        found.append(f"{one.metric} ({differ})" if several else one.metric)
    same = Counter(zip(map(case, explained), found, strict=True))
    return [
        label if same[case(one), label] == 1 else f"{label} of {one.record['id']}"
        for one, label in zip(explained, found, strict=True)
    ]


def _under(one: Explained) -> Mapping[str, object]:
    engine, model = one.record.get("engine", {}), one.record.get("model", {})
    described = {
        "cluster": one.record.get("cluster", {}).get("name"),
        "backends": engine.get("backends"),
        "version": engine.get("version"),
        "weights": model.get("weights"),
    }
    known = {key: value for key, value in described.items() if value}
    return {**known, **one.case["parameters"], **one.conditions}


_BAR = 40
_ANY = 1.005
_COLOURS = {"cannot be right": "bold red", "below half of the interval": "bold red",
            "slower than predicted": "yellow"}  # fmt: skip


def to_terminal(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> None:
    """Print explanations; in a pipe or a file a sentence is a line."""
    console = output()
    last, noticed = "", set[str]()
    for one, label in zip(explained, labels(explained), strict=True):
        if case(one) != last:
            noticed.clear()
            say(console, f"{chr(10) if last else ''}{case(one)}", "bold")
        last = case(one)
        say(console, f"{label}: {measured(one)}", _COLOURS.get(one.verdict, ""), indent=2)
        if one.prediction:
            bar = render.rich_bar(one.prediction.parts, _BAR)
            ms = 1000 / one.prediction.value
            bar.append(f" {format_significant(ms)} ms: {render.percentages(one.prediction.parts)}")
            say(console, bar, indent=4)
        for sentence in sentences(one):
            if sentence not in noticed:
                say(console, sentence, indent=4)
            if sentence.startswith(NOTICED):
                noticed.add(sentence)
    found = [one.prediction for one in explained if one.prediction]
    foot = ["", *render.legend(found), *_assumptions(explained)] if found else []
    for text in (*_rest(rest), *foot):
        # A link stays one where the terminal itself breaks the line.
        say(console, text, whole=True)


def to_markdown(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> str:
    """Explanations as GitHub Markdown."""
    lines = []
    for one, label in zip(explained, labels(explained), strict=True):
        lines.append(f"**{escaped(case(one))}**, {escaped(label)}: {escaped(measured(one))}")
        lines.append("")
        if one.prediction:
            lines.append(f"- Predicted time: {escaped(render.percentages(one.prediction.parts))}.")
        lines += [f"- {escaped(sentence)}" for sentence in sentences(one)]
        lines.append("")
    lines += [escaped(text) if text else "" for text in (*_rest(rest), *_assumptions(explained))]
    return "\n".join(lines).rstrip() + "\n"


def to_json(explained: Sequence[Explained], rest: Sequence[Unmeasured]) -> str:
    """Explanations with all their numbers; a key without a value is absent."""
    without = [{"case": dict(one.case), "why": one.why} for one in rest]
    body = {"explained": [_document(one) for one in explained], "without_speed": without}
    return as_json(titled("explanation", body))


def _document(one: Explained) -> dict[str, object]:
    document: dict[str, object] = {
        "record": one.record["id"],
        "case": dict(one.case),
        "metric": one.metric,
        "conditions": dict(one.conditions),
        "unit": "tok/s",
        "measured": one.measured,
        "n_runs": one.runs,
        "clues": [cause.diagnostic.text for cause in one.causes],
        "causes": [_cause(cause) for cause in one.slows],
        "remedies": [
            {key: value for key, value in vars(remedy).items() if value is not None}
            for remedy in one.remedies
        ],
        "explained": not one.unexplained,
        "sentences": list(sentences(one)),
    }
    if one.prediction is None:
        return document | {"why_not": one.why_not}
    document |= {
        "predicted": one.prediction.value,
        "low": one.prediction.low,
        "high": one.prediction.high,
        "verdict": one.verdict,
        "shares": render.shares(one.prediction.parts),
        "helps": [{"what": help_.what, "factor": help_.factor} for help_ in one.sensitivities],
        "assumptions": list(one.prediction.assumptions),
    }
    return document | ({"roof": one.roofline} if one.roofline else {})


def _cause(cause: WeighedDiagnostic) -> dict[str, object]:
    one = cause.diagnostic
    document: dict[str, object] = {"key": one.key, "text": one.text, "slows": one.slows}
    return document if cause.known is None else {**document, "factor": cause.known}


def _rest(rest: Sequence[Unmeasured]) -> list[str]:
    """Records of one reason are one line."""
    counts = Counter(
        f"{one.case['benchmark']}, {plural(one.case['nodes'], 'node')}: {one.why}" for one in rest
    )
    lines = [f"{plural(count, 'record')} of {name}" for name, count in counts.items()]
    return ["", *lines] if lines else []


def _assumptions(explained: Sequence[Explained]) -> list[str]:
    assumptions = dict.fromkeys(
        text for one in explained if one.prediction for text in one.prediction.assumptions
    )
    return ["", render.ASSUMED, *(f"- {text}" for text in assumptions)] if assumptions else []
