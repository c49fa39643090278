"""vLLM's client, `vllm bench serve`, as JSON and as printed."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nixwulf.core.files import DATA, read_toml
from nixwulf.core.metric import Metric
from nixwulf.core.secrets import cut
from nixwulf.outputs import Found, ParseError, Tool, ToolFailed, as_printed, json_object, model_of

ENGINE = "vllm"
_SERVE = "vllm bench serve"
_LABELS_OF = read_toml(DATA / "vllm_results.toml")
# Labels of the printed result by the keys of the JSON one; those of some versions, and of sglang,
# whose client was made from this one, the other way round.
_PRINTED: Mapping[str, str] = _LABELS_OF["printed"]
_PRINTED_SOMETIMES: Mapping[str, str] = _LABELS_OF["sometimes"]
# By the keys of JSON what else a record has: a metric with its unit, or what is seen beside one.
_MORE: Mapping[str, Sequence[str]] = _LABELS_OF["more"]
SGLANG = ("Mean E2E Latency (ms):", '"mean_e2e_latency_ms"')
"""What a result of sglang's client has once, and vLLM's never."""
_OFFLINE = "Offline Throughput Benchmark Result"  # sglang's other benchmark, with the same labels
_SERVED = (f"{_PRINTED['output_throughput']}:", '"mean_ttft_ms"')
# What argparse prints of the options: Namespace(backend='vllm', model='tiny', request_rate=inf).
_OPTIONS = re.compile(
    r"^.{0,40}Namespace\(.*$|^.*(?:vllm bench|bench_serving|benchmark_\w+(?:\.py)?) .*$",
    re.MULTILINE,
)
_OPTION = re.compile(
    r"(?<![\w-])(?:--)?(?P<key>model|backend|request[-_]rate|max[-_]concurrency|dataset[-_](?:name|path)|"
    r"(?:random[-_])?(?:input|output)(?:[-_]len)?|random[-_]range[-_]ratio)[= ]"
    r"(?:(?P<quote>['\"])(?P<text>.*?)(?P=quote)|(?P<word>[^\s,)]+))"
)
_BEGUN = re.compile(r"Serving Benchmark Result|^\W*-{5,} ?[A-Z][^\n]*-{5,}\W*$", re.MULTILINE)
_CLOSING = re.compile(r"^\W*={20,}\W*$", re.MULTILINE)
_CONTINUED = re.compile(r"\\[ \t]*\n")
# 'Median TTFT (ms)', in JSON median_ttft_ms: of the first token, of each, between them, of all.
_TIME = re.compile(
    r"(mean|median|std|max|p[\d.]+)[_ ](ttft|tpot|itl|e2el|e2e[_ ]latency)(?:_ms| \(ms\))",
    re.IGNORECASE,
)
_LINE = re.compile(
    r"^[ |*]*(?P<key>[\w()/.][\w()/ .%]*?)(?: *:\**(?: *\|)?|[ *]*\|)[ *]+"
    r"(?P<value>[\d.eE+-]+)(?: +\w+)?[ |*]*$"
)
# Between the blocks of several runs people write how many asked at once.
_AT_ONCE = r"^[^\w\n]*(?:max[-_ ])?concurrency *[=:] *"
_MS_A_SECOND = 1000.0
_PERCENTILES = ("p50", "p95", "p99")
_TOKENS = ("input_tokens", "output_tokens")


@dataclass(frozen=True)
class ServeResult:
    """One pass of requests; times in ms, rates in tok/s.

    output_throughput counts generated tokens only. times_ms: the mean and the percentiles (p50,
    p99, ...) of ttft, tpot, itl and e2el; each_ms: ttft of every request and all gaps between
    tokens (itl), where all were saved. model and backend are empty in text; request_rate and
    concurrency are None where nothing bounds them. more: of _MORE. missing: labels that a paste
    lacks, whose numbers are 0.
    """

    completed: int
    failed: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    request_throughput: float
    output_throughput: float
    times_ms: Mapping[str, Mapping[str, float]]
    each_ms: Mapping[str, tuple[float, ...]]
    model: str
    backend: str
    request_rate: float | None
    concurrency: int | None
    more: Mapping[str, float]
    missing: tuple[str, ...]


def recognises(text: str) -> bool:
    """A key or label of its result."""
    if _OFFLINE in text and "Serving Benchmark Result" not in text:
        return False
    if others := sum(map(text.count, SGLANG)):
        return sum(map(text.count, _SERVED)) > others
    return '"mean_ttft_ms"' in text or any(label in text for label in _PRINTED.values())


def read(text: str) -> list[Found]:
    """The pass of requests."""
    if any(mark in text for mark in SGLANG):
        raise ParseError("it is a result of sglang's bench_serving; add --tool sglang-bench.")
    printed = '"output_throughput"' not in text
    return [served(text, parse_serve(text, cut=printed), "vllm-bench", _SERVE)]


TOOL = Tool("vllm-bench", recognises, read, failed=Found("vllm-bench", ()))


def served(
    text: str, found: ServeResult, benchmark: str, tool: str, engines: Collection[str] = (ENGINE,)
) -> Found:
    """The client of any server: only its own backend's name shows that the server is its own.

    text: the output that it was found in. engines: those that it has backends for by their names.
    """
    if not found.completed and _PRINTED["completed"] not in found.missing:
        raise ToolFailed(f"{tool} completed no request, and {found.failed} failed.")
    own = next((name for name in engines if name in found.backend.split("-")), None)
    options = _options(text)
    exact, prompts = ("0", "random") if tool == _SERVE else ("1", "sharegpt")
    dataset = options.get("dataset_name")
    if dataset == "hf":
        dataset = model_of(options.get("dataset_path", dataset)).get("name")
    conditions = {
        "requests": (found.completed + found.failed) or None,
        "concurrency": found.concurrency,
        "request_rate": found.request_rate,
        "dataset": None if dataset == prompts else dataset,
        **_lengths(options, exact),
    }
    measured = [one for one in metrics([found], conditions) if any(one.samples)]
    for key, (name, unit) in _MORE.items():
        if unit and found.more.get(key):
            measured.append(Metric(name, unit, (found.more[key],), conditions=conditions))
    if not measured:
        raise ParseError(f"{tool}: no line has a speed or a time, expected a finished result.")
    seen: dict[str, float | str] = {}
    seen |= {_MORE[key][0]: one for key, one in found.more.items() if not _MORE[key][1]}
    seen |= {"backend": found.backend} if found.backend != own else {}
    last = next((one for one in measured if one.name == "throughput"), measured[-1])
    measured[measured.index(last)] = replace(last, observed={**last.observed, **seen})
    return Found(
        benchmark,
        as_printed(measured),
        engine={"name": own} if own else {},
        model=model_of(found.model),
        warnings=tuple(_warnings(text, found)),
    )


def _warnings(text: str, found: ServeResult) -> Iterator[str]:
    """Warn a reader of the numbers: of failed requests, and of what a paste lacks."""
    if found.failed:
        yield f"Of {found.completed + found.failed} requests {found.failed} failed."
    begun = [one.end() for one in _BEGUN.finditer(text)]
    begins = next(iter(_PRINTED.values())) not in found.missing
    whole = begins and bool(begun and _CLOSING.search(text, begun[-1]))
    without = ", ".join(map(repr, found.missing))
    if without and whole:
        yield f"The result lacks {without}, or has other units."
    elif without or (begun and not whole):
        yield f"The result is cut off: it lacks {without or 'its closing line'}."


def metrics(
    passes: Sequence[ServeResult], conditions: Mapping[str, object], state: str | None = None
) -> list[Metric]:
    """Times (ms), decode speed of a request, and speeds of all at once, a sample a pass.

    Times of single requests, where all were saved, are samples themselves. decode is of the mean
    time, not the mean of speeds: an answer that a busy client read in one go has next to no time
    between its tokens, and one such answer outweighs all others.

    passes: at least one, each with a completed request. state: warm, cold, or None where it is not
    known.
    """
    each = {
        name: tuple(time for one in passes for time in one.each_ms[name])
        for name in ("ttft", "itl")
        if all(one.each_ms.get(name) for one in passes)
    }
    of_all = set.intersection(*(set(one.times_ms) for one in passes))
    found = [
        _time(name, [one.times_ms.get(name, {}) for one in passes], each, conditions, state)
        for name in sorted(each.keys() | of_all)
    ]
    if "tpot" in of_all:
        rates = tuple(_MS_A_SECOND / one.times_ms["tpot"]["mean"] for one in passes)
        found.append(Metric("decode", "tok/s", rates, state, conditions))
    tokens = {key: sum(getattr(one, key) for one in passes) for key in _TOKENS}
    speeds = tuple(one.output_throughput for one in passes)
    requests = tuple(one.request_throughput for one in passes)
    tokens = {key: count for key, count in tokens.items() if count or not passes[0].missing}
    return [
        *found,
        Metric("throughput", "tok/s", speeds, state, conditions, observed=tokens),
        Metric("request_throughput", "req/s", requests, state, conditions),
    ]


def _time(
    name: str,
    times: Sequence[Mapping[str, float]],
    each: Mapping[str, tuple[float, ...]],
    conditions: Mapping[str, object],
    state: str | None,
) -> Metric:
    """Pool means and percentiles of passes; of one pass all of them are kept."""
    tails = [one["p99"] for one in times if "p99" in one]
    seen, whole = {"p99_ms": max(tails)} if tails else {}, None
    if len(times) == 1:
        printed = {key: times[0][key] for key in _PERCENTILES if key in times[0]}
        whole = printed if len(printed) == len(_PERCENTILES) else None
        beside = times[0].keys() - (whole or {}).keys() - {"mean"}
        seen |= {f"{key.replace('.', '_')}_ms": times[0][key] for key in sorted(beside)}
    return Metric(
        name,
        "ms",
        each.get(name) or tuple(one["mean"] for one in times),
        state,
        conditions,
        distribution=name in each,
        observed=seen,
        percentiles=whole,
    )


def parse_serve(text: str, *, cut: bool = False) -> ServeResult:
    """The result of `vllm bench serve`, its JSON file or its output, whose paste may be cut.

    Raises ParseError: it is no whole result, or has no number where one is.
    """
    values = json_object(_SERVE, text) if text.lstrip().startswith("{") else _printed(text)
    missing = tuple(label for key, label in _PRINTED.items() if cut and key not in values)
    numbers = {
        key: 0.0 if label in missing else _number(values, key) for key, label in _PRINTED.items()
    }
    concurrency = _bound(values, "max_concurrency")
    each = {}
    for name in ("ttft", "itl"):
        saved = values.get(f"{name}s")
        if isinstance(saved, list) and len(saved) == numbers["completed"]:
            times = (time for one in saved for time in (one if isinstance(one, list) else [one]))
            each[name] = tuple(_number({"time": one}, "time") * _MS_A_SECOND for one in times)
    return ServeResult(
        completed=int(numbers["completed"]),
        failed=int(_number(values, "failed")) if "failed" in values else 0,
        duration_s=numbers["duration"],
        input_tokens=int(numbers["total_input_tokens"]),
        output_tokens=int(numbers["total_output_tokens"]),
        request_throughput=numbers["request_throughput"],
        output_throughput=numbers["output_throughput"],
        times_ms=_times(values),
        each_ms=each,
        model=str(values.get("model_id") or values.get("model") or ""),
        backend=str(values.get("backend") or ""),
        request_rate=_bound(values, "request_rate"),
        concurrency=int(concurrency) if concurrency else None,
        more={key: _number(values, key) for key in _MORE if values.get(key) is not None},
        missing=missing,
    )


def _printed(text: str) -> dict[str, str]:
    """The numbers of the printed table by the keys of the JSON file."""
    keys = {**{label: key for key, label in _PRINTED.items()}, **_PRINTED_SOMETIMES}
    values = _options(text)
    for line in text.splitlines():
        match = _LINE.match(line)
        label = match["key"].strip() if match else ""
        if match and (label in keys or _TIME.fullmatch(label)):
            values[keys.get(label, label)] = match["value"]
    return values


def _options(text: str) -> dict[str, str]:
    """Read the options of a command, and of a run that argparse printed last."""
    at_once = re.findall(rf"{_AT_ONCE}(\d+)\W*?$", text, re.MULTILINE | re.IGNORECASE)
    values: dict[str, str] = {"max_concurrency": at_once[0]} if at_once else {}
    for line in _OPTIONS.findall(_CONTINUED.sub(" ", text)):
        for one in _OPTION.finditer(line):
            values[one["key"].replace("-", "_")] = one["text"] if one["quote"] else one["word"]
    return {key: value for key, value in values.items() if value != "None"}


def _lengths(options: Mapping[str, str], exact: str) -> dict[str, int]:
    """Tokens of prompts and answers that were asked for, where all have as many.

    exact: the ratio of lengths with which all have; vLLM's client has it unless another is given.
    """
    ratio = options.get("random_range_ratio", "0")
    if options.get("dataset_name", "random") != "random" or ratio not in {exact, f"{exact}.0"}:
        return {}
    names = {"n_prompt": "input", "n_gen": "output"}
    found = {
        key: options.get(f"random_{name}_len")
        or options.get(f"{name}_len")
        or options.get(f"random_{name}")
        for key, name in names.items()
    }
    return {key: int(n or 0) for key, n in found.items() if re.fullmatch("[0-9]{1,9}", n or "")}


def _times(values: Mapping[str, object]) -> dict[str, dict[str, float]]:
    """Milliseconds by what they are of and by mean or percentile; the median is p50."""
    found: dict[str, dict[str, float]] = {}
    for key in values:
        match = _TIME.fullmatch(key)
        if match:
            which = "p50" if match[1].lower() == "median" else match[1].lower()
            name = match[2].lower()
            name = "e2el" if name.startswith("e2e") else name
            found.setdefault(name, {})[which] = _number(values, key)
    for times in found.values():
        times.setdefault("mean", times.get("p50", 0.0))
    return {name: times for name, times in sorted(found.items()) if times["mean"]}


def _bound(values: Mapping[str, object], key: str) -> float | None:
    unbounded = str(values.get(key, "inf")) in {"inf", "None"}
    return None if unbounded else _number(values, key)


def _number(values: Mapping[str, object], key: str) -> float:
    if key not in values:
        label = _PRINTED.get(key, key)
        raise ParseError(f"{_SERVE}: no line has {label!r}, expected a finished result.")
    value = values[key]
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ParseError(f"{_SERVE}: {key!r} is {cut(str(value), 40)!r}, expected a number.")
    return number
