"""A comparison in words: on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.text import Text

from nixwulf.core.document import (
    Cell,
    Column,
    Table,
    Value,
    escaped,
    markdown,
    output,
    pipe_table,
    rich_table,
)
from nixwulf.core.files import as_json, titled
from nixwulf.core.metric import accepted, short_name
from nixwulf.core.query import grouped
from nixwulf.core.text import (
    case_name,
    clean,
    format_significant,
    link_name,
    plural,
    some,
    unit_name,
)
from nixwulf.outputs import present
from nixwulf.results.compare.comparison import Alone, Comparison, Pair, SideValue
from nixwulf.results.compare.interval import ASSUMED, Interval
from nixwulf.results.identity import Identity, Key, differing

_COLUMNS: tuple[Column | str, ...] = (
    "case",
    Column("metric", whole=True),
    *(Column(head, number=True, whole=True) for head in ("A", "B", "B / A", "95 % interval")),
    Column("B is", whole=True),
)
_UNNAMED = ("", Column("", whole=True), *_COLUMNS[2:])
_STYLES = {"better": "good", "worse": "bad", "": "quiet"}


def to_terminal(comparison: Comparison, limit: float | None) -> None:
    """Print a comparison; a case is named at the first of its metrics."""
    console = output()
    names = Names(comparison)
    for head in _heads(comparison, names):
        console.print(Text(head))
    rows: list[list[Value]] = []
    last = None
    for (case, *cells, word), pair in zip(pairs(comparison, names), comparison.pairs, strict=True):
        rows.append(
            [case if case != last else "", *cells, Cell(word, style=_STYLES[pair.judgement])]
        )
        last = case
    if rows:
        console.print()
        console.print(rich_table(Table(_UNNAMED, rows)))
    for sentence in sentences(comparison, names, limit):
        console.print()
        console.print(Text(sentence))


def to_markdown(comparison: Comparison, limit: float | None) -> str:
    """A comparison as GitHub Markdown, to paste into an issue or a pull request."""
    names = Names(comparison)
    rows = pairs(comparison, names)
    return markdown(
        (
            "  \n".join(map(escaped, _heads(comparison, names))),
            pipe_table(Table(_COLUMNS, rows)) if rows else "",
            *map(escaped, sentences(comparison, names, limit)),
        )
    )


def to_json(comparison: Comparison, limit: float | None) -> str:
    """A comparison with all its numbers; a key without a value is absent."""
    document: dict[str, object] = {
        "a": {"name": comparison.a.name, "records": len(comparison.a.records)},
        "b": {"name": comparison.b.name, "records": len(comparison.b.records)},
        "over": list(comparison.over),
        "differences": [
            {"what": one.what, "a": list(one.a), "b": list(one.b)} for one in comparison.differences
        ],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "failures": [
            {"case": _flat(one.shared), "a": dict(one.a), "b": dict(one.b)}
            for one in comparison.endings
        ],
        "not_compared": [{"why": one.why, "case": _flat(one.shared)} for one in comparison.alone],
    }
    if limit is not None:
        below = comparison.below(limit)
        document["fail_below"] = {
            "limit": limit,
            "pairs": [i for i, pair in enumerate(comparison.pairs) if pair in below],
            "failures": [i for i, ending in enumerate(comparison.endings) if ending in below],
        }
    return as_json(titled("comparison", document))


def _heads(comparison: Comparison, names: Names) -> list[str]:
    heads = [
        f"{letter}  {clean(side.name)} ({plural(len(side.records), 'record')})"
        for letter, side in (("A", comparison.a), ("B", comparison.b))
    ]
    differing = "; ".join(differences(comparison))
    heads.append(
        f"They differ in: {differing}." if differing else "They differ in nothing that is recorded."
    )
    return [*heads, *([f"In all pairs: {clean(names.common)}."] if names.common else [])]


def _pair(pair: Pair) -> dict[str, object]:
    document = {
        "case": _flat(pair.shared),
        "a": present(vars(pair.a)),
        "b": present(vars(pair.b)),
        "ratio": pair.ratio,
        "interval": None if pair.interval is None else [pair.interval.low, pair.interval.high],
        "session_effect": None if pair.interval is None else _session_effect(pair.interval),
        "b_is": pair.word,
        "for_the": pair.judgement,
    }
    return present(document)


def _session_effect(interval: Interval) -> dict[str, object]:
    assumed = {"assumed_stddev_of_a_session": ASSUMED} if interval.basis == "assumed" else {}
    return {"basis": interval.basis, "stddev": math.sqrt(interval.sessions.of), **assumed}


def _flat(identity: Identity) -> dict[str, object]:
    """Conditions and parameters in objects of their own, as a record has them."""
    found: dict[str, dict[str, object]] = {}
    for key, value in sorted(identity.items(), key=lambda item: item[0]):
        if value not in (None, ""):
            found.setdefault(key.group, {})[key.name] = value
    return {**found.pop("", {}), **found}


_NAMED = ("nodes", "parallelism", "fabric", "transport")
_NOT_SHOWN = frozenset({"metric", "unit"})
_MOST_VALUES = 3
_MOST_ALONE = 8


class Names:
    """Names of the cases of a comparison: the conditions that vary among them."""

    def __init__(self, comparison: Comparison) -> None:
        pairs = [pair.shared for pair in comparison.pairs]
        self._pairs = pairs or [ending.shared for ending in comparison.endings]
        alone = [one.shared for one in comparison.alone]
        endings = [ending.shared for ending in comparison.endings]
        self._of_pairs = _telling(self._pairs, endings)
        self._of_all = _telling([*self._pairs, *alone], endings)

    @property
    def common(self) -> str:
        """The conditions that all pairs have, without parameters that are conditions too."""
        shown = {
            key: value
            for key, value in self._pairs[0].items()
            if all(one.get(key) == value for one in self._pairs)
        }
        names = {key.name for key in shown if key.group == "conditions"}
        texts = [str(v) for key, v in shown.items() if not key.group and self._is_shown(key, v)]
        texts += [
            f"{key.name} {value}"
            for key, value in shown.items()
            if key.group == "conditions" or (key.group and key.name not in names)
        ]
        return ", ".join(texts)

    def case(self, identity: Identity) -> str:
        """Name it by its difference from the other pairs: '2 nodes, tensor, lan, depth 8192'."""
        return self._case(identity, self._of_pairs)

    def alone(self, identity: Identity) -> str:
        """Name it by its difference from all others, also those that were not compared."""
        return self._case(identity, self._of_all)

    def _case(self, identity: Identity, varying: set[Key]) -> str:
        nodes = identity.get(Key("", "nodes"))
        texts = [str(identity.get(Key("", name)) or "") for name in _NAMED[1:]]
        base = (
            case_name(nodes, texts[0], link_name(*texts[1:]))
            if isinstance(nodes, int) and nodes
            else ""
        )
        others = [
            str(value)
            for key, value in identity.items()
            if not key.group and key in varying and self._is_shown(key, value)
        ]
        rest = dict.fromkeys(
            f"{_asked(key, identity)}{key.name} {value}"
            for key, value in identity.items()
            if key.group and key in varying
        )
        return clean(", ".join(filter(None, [*others, base, *rest])))

    @staticmethod
    def _is_shown(key: Key, value: object) -> bool:
        return value not in (None, "") and key.name not in {*_NAMED, *_NOT_SHOWN}


def pairs(comparison: Comparison, names: Names) -> list[tuple[str, ...]]:
    """Put each pair in words: case, metric, A, B, B over A, the interval, and what B is."""
    return [
        (
            names.case(pair.shared),
            f"{short_name(pair.metric)} {unit_name(pair.unit)}",
            _value(pair.a),
            _value(pair.b),
            "" if pair.ratio is None else f"{pair.ratio:.3f}",
            f"{pair.interval.low:.3f} to {pair.interval.high:.3f}" if pair.interval else "",
            pair.word,
        )
        for pair in comparison.pairs
    ]


def sentences(comparison: Comparison, names: Names, limit: float | None) -> list[str]:
    """Say below the pairs what failed, is left out, and is below `limit`, a share of A or None."""
    sentences = [
        f"{names.case(e.shared)}: A ended {_outcomes(e.a)}, B ended {_outcomes(e.b)}."
        for e in comparison.endings
    ]
    sentences += _alone(comparison.alone, names)
    unjudged = comparison.unjudged
    if unjudged:
        sentences.append(
            f"{plural(len(unjudged), 'pair')} without an interval: it takes 3 samples on each "
            "side, above 0."
        )
    single = sum(pair.single for pair in comparison.pairs if pair.interval is not None)
    if single:
        sentences.append(
            f"{plural(single, 'pair')} with one run on a side: the interval is of the noise inside "
            "a run, and two runs of the same differ by more; give the sweep more 'repetitions'."
        )
    sentences += _sessions(comparison)
    if limit is not None:
        sentences += _verdict(comparison, names, limit)
    return [clean(sentence) for sentence in sentences]


def differences(comparison: Comparison) -> list[str]:
    """'engine version b1 -> b2'; of many values, how many."""
    return [clean(f"{d.what} {_values(d.a)} -> {_values(d.b)}") for d in comparison.differences]


def _values(values: tuple[str, ...]) -> str:
    if len(values) > _MOST_VALUES:
        return f"{len(values)} values"
    return ", ".join(values) or "none"


def _value(value: SideValue) -> str:
    text = format_significant(value.value) if value.value else "0"
    return text + accepted(value.acceptance)


def _outcomes(outcomes: Mapping[str, int]) -> str:
    if len(outcomes) == 1:
        return str(next(iter(outcomes)))
    return ", ".join(f"{name} ({count})" for name, count in sorted(outcomes.items()))


def _alone(alone: Sequence[Alone], names: Names) -> list[str]:
    sentences = []
    for why in dict.fromkeys(one.why for one in alone):
        cases: dict[str, dict[str, None]] = defaultdict(dict)
        found = [one for one in alone if one.why == why]
        for one in found:
            cases[names.alone(one.shared)][str(one.shared[Key("", "metric")])] = None
        texts = [f"{case} ({', '.join(metrics)})" for case, metrics in cases.items()]
        listed = some(texts, _MOST_ALONE, "; ")
        sentences.append(f"Not compared, {why}: {plural(len(found), 'metric')} of {listed}.")
    return sentences


def _verdict(comparison: Comparison, names: Names, limit: float) -> list[str]:
    below = comparison.below(limit)
    judged = sum(pair.judged is not None for pair in comparison.pairs)
    if not below:
        of = plural(judged, "judged pair")
        return [f"None of {of} is shown to be below {limit:g} of A."] if judged else []
    cases = dict.fromkeys(
        f"{names.case(one.shared)} ({one.metric.replace('_', ' ')})"
        if isinstance(one, Pair)
        else f"{names.case(one.shared)} (failed)"
        for one in below
    )
    return [f"Below {limit:g} of A: {'; '.join(cases)}."]


def _sessions(comparison: Comparison) -> list[str]:
    """Say what the intervals hold of the difference between sessions, and what that rests on."""
    intervals = [pair.interval for pair in comparison.pairs if pair.interval is not None]
    found = grouped((one.basis, 100 * math.sqrt(one.sessions.of)) for one in intervals)
    words = {basis: plural(len(errors), "pair") for basis, errors in found.items()}
    sentences = []
    if "assumed" in found:
        sentences.append(
            f"{words['assumed']} with an assumed session effect: {100 * ASSUMED:g} % from one "
            "boot, system or day to the next. Run both sides in turn in one session ('nixwulf "
            "bench SWEEP --baseline QUERY'), or each in three."
        )
    if "repeated" in found:
        errors = found["repeated"]
        values = dict.fromkeys(f"{error:.1f}" for error in (min(errors), max(errors)))
        sentences.append(
            f"{words['repeated']} with the session effect that repeated sessions show: "
            f"{' to '.join(values)} % of the ratio."
        )
    if "in turn" in found:
        sentences.append(
            f"{words['in turn']} without a session effect: both sides were run in turn."
        )
    return sentences


def _asked(key: Key, identity: Identity) -> str:
    """A parameter that a condition of its name differs from: each direction of a test of both."""
    other = identity.get(Key("conditions", key.name))
    differs = other is not None and other != identity[key]
    return "asked " if differs and key.group == "parameters" else ""


def _telling(measured: Sequence[Identity], endings: Sequence[Identity]) -> set[Key]:
    """The keys that distinguish some; what all of one metric have is none of them."""
    bare = [
        {k: v for k, v in one.items() if k.group != "conditions" and k.name != "state"}
        for one in measured
    ]
    keys = differing([*bare, *endings])
    by_metric = grouped((str(one.get(Key("", "metric"))), one) for one in measured)
    return keys.union(*(differing(found) for found in by_metric.values()))
