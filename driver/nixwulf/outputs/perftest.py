"""perftest (ib_write_lat, ib_read_bw, ...): a row for each message size."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nixwulf.core.metric import Metric
from nixwulf.core.query import grouped
from nixwulf.outputs import PAIR, Found, ParseError, Tool, ToolFailed

_HEADING = re.compile(
    r"#bytes|#iterations|"
    r"(?:BW peak|BW average|99% percentile|99\.9% percentile|(?<!\w)\w++)\[[^\]]{1,40}\]"
)
_NUMBER = re.compile(r"^\d+(?:\.\d+)?$")
# What perftest prints when it gives up; it has no prefix for errors.
_ERROR = re.compile(r"Unable to|Couldn't|Could not|[Ff]ailed|Did not detect|[Ee]rror|not supported")
_NO_DEVICE = ("Did not detect devices", "Unable to find the Infiniband/RoCE device")
# perftest's MB is 2**20 bytes (https://github.com/linux-rdma/perftest, README: "MiB/sec").
_GBPS = {"Gb/sec": 1.0, "MB/sec": 2**20 * 8 / 1e9, "MiB/sec": 2**20 * 8 / 1e9}
_CSV = "timestamp_utc,"
_TITLE = re.compile(
    r"(?:RDMA_)?(Write|Read|Send|Atomic(?: FETCH_AND_ADD| CMP_AND_SWAP)?) "
    r"(?:Bidirectional )?(?:Post List )?(?:BW|Latency) Test"
)
_COMMAND = re.compile(r"\bib_(write|read|send|atomic)_(?:lat|bw)\b")
_PEER = re.compile(r"remote address: LID.*\n GID: *(\S+)")
# Conditions by their labels; of tests that differ in one, none is stated.
_SETTING = re.compile(r"^ *(Number of qps|Post List|TX depth|Mtu) *: *(\d{1,7})\b", re.MULTILINE)
_SETTINGS = {"Number of qps": "qps", "Post List": "post_list", "TX depth": "tx_depth", "Mtu": "mtu"}


@dataclass(frozen=True)
class LatencyRow:
    """Times in microseconds of one size; of write and send half a round trip, of read a whole.

    details: what a runner's table has of the test: operation, direction, qps, device, connection.
    """

    bytes: int
    iterations: int
    minimum: float
    maximum: float
    typical: float
    average: float
    stddev: float
    p99: float
    p999: float
    details: Mapping[str, object] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class BandwidthRow:
    """Gbit/s of a size, million messages a second; peak None: not measured; details: as above."""

    bytes: int
    iterations: int
    peak_gbps: float | None
    average_gbps: float
    message_rate_mpps: float
    details: Mapping[str, object] = field(default_factory=dict, kw_only=True)


def parse(text: str) -> list[LatencyRow | BandwidthRow]:
    """Every row of a client's output; raises ParseError with perftest's words when it has none."""
    if text.startswith(_CSV):
        return _from_csv(text)
    rows: list[LatencyRow | BandwidthRow] = []
    headings: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if "#bytes" in words:
            headings = _HEADING.findall(line)
        elif headings and len(words) == len(headings) and all(map(_NUMBER.match, words)):
            rows.append(_row(dict(zip(headings, words, strict=True)), number))
    if not rows:
        words_of = next((line.strip() for line in reversed(lines) if _ERROR.search(line)), None)
        if words_of:
            raise ToolFailed(f"perftest gave no result: {words_of.rstrip('.')}.")
        raise ParseError(f"perftest gave no row by line {len(lines)}, expected one below '#bytes'.")
    return rows


def recognises(text: str) -> bool:
    """The head of its table, its words for a missing device, or the runner's table."""
    if text.startswith(_CSV) or any(words in text for words in _NO_DEVICE):
        return True
    return any("#bytes" in line and "[" in line for line in text.splitlines())


def read(text: str) -> list[Found]:
    """One case of the machines: rows of one size and test are samples."""
    rows = parse(text)
    titles = _TITLE.findall(text)
    operations = {name.lower() for name in titles or _COMMAND.findall(text)}
    found = _SETTING.findall(text)
    settings = {_SETTINGS[key]: {int(n) for name, n in found if name == key} for key, _ in found}
    reported = {
        "operation": operations.pop() if len(operations) == 1 else None,
        "bidirectional": True if "Bidirectional " in text else None,
        **{key: numbers.pop() for key, numbers in settings.items() if len(numbers) == 1},
    }
    devices = {row.details.get("device") for row in rows}
    seen = {"device": devices.pop()} if len(devices) == 1 else {}
    groups = grouped(((type(row), row.bytes, *sorted(row.details.items())), row) for row in rows)
    metrics = []
    for own in groups.values():
        details = {key: value for key, value in own[0].details.items() if key not in seen}
        one = metric(own, {**reported, **details, "bytes": own[0].bytes})
        metrics.append(replace(one, observed={**seen, **one.observed}))
    several = (
        f"{len(titles)} tests are in this output, and its rows do not show of which they are.",
    )
    peer, warnings = " ".join(sorted(set(_PEER.findall(text)))), several if len(titles) > 1 else ()
    return [replace(_CASE, metrics=metrics, peer=peer, warnings=warnings)]


_CASE = Found("perftest", (), machines=True, nodes=PAIR, transport="rdma")
TOOL = Tool("perftest", recognises, read, failed=_CASE)


def metric(
    rows: Sequence[LatencyRow | BandwidthRow],
    conditions: Mapping[str, object],
    state: str | None = None,
) -> Metric:
    """The typical time, us, with the worst of the tails, or the mean rate, Gbit/s; a sample a row.

    rows: of one size, all latencies or all bandwidths; at least one. state: warm, cold, or None
    where it is not known.
    """
    times = [row for row in rows if isinstance(row, LatencyRow)]
    if times:
        tails = {
            "average_us": sum(row.average for row in times) / len(times),
            "p99_us": max(row.p99 for row in times),
            "p999_us": max(row.p999 for row in times),
            "min_us": min(row.minimum for row in times),
            "max_us": max(row.maximum for row in times),
        }
        samples = tuple(row.typical for row in times)
        return Metric("rdma_latency", "us", samples, state, conditions, observed=tails)
    rates = [row for row in rows if isinstance(row, BandwidthRow)]
    peak = max(row.peak_gbps or 0 for row in rates)
    samples = tuple(row.average_gbps for row in rates)
    seen = {"message_rate_mpps": max(row.message_rate_mpps for row in rates)}
    seen |= {"peak_gbps": peak} if peak else {}
    return Metric("rdma_bandwidth", "Gbit/s", samples, state, conditions, observed=seen)


def _row(values: Mapping[str, str], number: int) -> LatencyRow | BandwidthRow:
    try:
        size, iterations = int(values["#bytes"]), int(values["#iterations"])
        if "t_typical[usec]" in values:
            names = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")
            times = [*names, "99% percentile", "99.9% percentile"]
            return LatencyRow(size, iterations, *(float(values[f"{name}[usec]"]) for name in times))
        unit = next(name for name in _GBPS if f"BW average[{name}]" in values)
        peak, average = (float(values[f"BW {what}[{unit}]"]) for what in ("peak", "average"))
        return BandwidthRow(
            size,
            iterations,
            round(peak * _GBPS[unit], 4) or None,
            round(average * _GBPS[unit], 4),
            float(values["MsgRate[Mpps]"]),
        )
    except (KeyError, ValueError, StopIteration) as error:
        lacks = f" lacks {error}" if isinstance(error, KeyError) else " has no result"
        raise ParseError(
            f"perftest's row in line {number}{lacks} among {', '.join(values)}; give the table "
            "with the columns that perftest prints, in any order."
        ) from None


def _from_csv(text: str) -> list[LatencyRow | BandwidthRow]:
    """The table of https://github.com/hellas-ai/thunderbolt-ibverbs' runner of perftest."""
    rows: list[LatencyRow | BandwidthRow] = []
    try:
        for row in csv.DictReader(text.splitlines()):
            if row["status"] == "ok":
                rows.append(_of_runner(row))
    except (csv.Error, KeyError, TypeError, ValueError):
        raise ParseError(
            f"perftest's table has no whole row in line {len(rows) + 2}, expected status to "
            "lat_p999_us."
        ) from None
    if not rows:
        raise ParseError("perftest's table has no row whose status is ok from line 2 on.")
    return rows


def _of_runner(row: Mapping[str, str]) -> LatencyRow | BandwidthRow:
    size, iterations = int(row["size_bytes"]), int(row["iters"])
    details: dict[str, object] = {
        "operation": row["verb"],
        "direction": row["direction"],
        "qps": int(row["qps"]),
        "device": row["dev"],
        "connection": row["connection"],
        **({"bidirectional": True} if row["bidirectional"] == "1" else {}),
    }
    if row["kind"] == "lat":
        names: Iterable[str] = ("min", "max", "typical", "avg", "stdev", "p99", "p999")
        found = [_finite(row[f"lat_{name}_us"]) for name in names]
        return LatencyRow(size, iterations, *found, details=details)
    rates = (_finite(row[name]) for name in ("bw_peak_gbps", "bw_avg_gbps", "msg_rate_mpps"))
    return BandwidthRow(size, iterations, *rates, details=details)


def _finite(text: str) -> float:
    if not _NUMBER.match(text):
        raise ValueError(text)
    return float(text)
