"""What each explained metric is called: with that alone which tells it from others of its case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from nixwulf.perf.explain.explanation import Explained
from nixwulf.perf.explain.text import case


def labels(explained: Sequence[Explained]) -> list[str]:
    """'decode', and where there are several of a case 'decode (n_depth 4096, threads 2)'."""
    seen: defaultdict[tuple[str, str], defaultdict[str, set[str]]]
    seen = defaultdict(lambda: defaultdict(set))
    for one in explained:
        for key, value in _under(one).items():
            seen[case(one), one.metric][key].add(str(value))
    counts = Counter((case(one), one.metric) for one in explained)
    found = [
        _label(one.metric, _under(one), seen[case(one), one.metric])
        if counts[case(one), one.metric] > 1
        else one.metric
        for one in explained
    ]
    same = Counter(zip(map(case, explained), found, strict=True))
    return [
        label if same[case(one), label] == 1 else f"{label} of {one.record['id']}"
        for one, label in zip(explained, found, strict=True)
    ]


def _under(one: Explained) -> Mapping[str, Any]:
    engine, model = one.record.get("engine", {}), one.record.get("model", {})
    described = {
        "cluster": one.record.get("cluster", {}).get("name"),
        "backends": engine.get("backends"),
        "version": engine.get("version"),
        "weights": model.get("weights"),
    }
    known = {key: value for key, value in described.items() if value}
    return {**known, **one.case["parameters"], **one.conditions}


def _label(metric: str, under: Mapping[str, Any], seen: Mapping[str, set[str]]) -> str:
    differ = [f"{key} {value}" for key, value in under.items() if len(seen[key]) > 1]
    return f"{metric} ({', '.join(differ)})" if differ else metric
