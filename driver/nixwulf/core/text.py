"""Numbers, labels and names as every form of the report writes them."""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

GIB = 2**30

_TERMINAL_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
_MICROSECONDS_IN_PROSE = 1000.0
_ONE_DECIMAL_BELOW_US = 10.0
_TENTH = 0.1
_LEAST_PART, _LONGEST_NAME, _MOST_LISTED = 3, 60, 40
_MOST_DECIMALS = 4


def clean(text: str) -> str:
    """Text of a program without terminal sequences and control characters; lines are kept."""
    if text.isprintable():
        return text
    text = _TERMINAL_SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def decimals(value: float) -> int:
    """Decimals that show a positive number with three significant digits."""
    return max(0, 2 - math.floor(math.log10(value))) if 0 < value < math.inf else 0


def format_significant(value: float) -> str:
    """A positive number with three significant digits, more only before the point."""
    return f"{value:.{decimals(float(f'{value:.3g}'))}f}"


@dataclass(frozen=True, order=True)
class Band:
    """A predicted value, and the interval that should hold 80 % of measurements, in one unit."""

    value: float
    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))

    @property
    def text(self) -> str:
        """'~15.2 (12.4 to 18.6)'."""
        value, low, high = map(format_significant, self)
        return f"~{value} ({low} to {high})"


def with_deviation(mean: float, deviation: float | None) -> str:
    """A mean and its standard deviation with the decimals of the mean: '22.1 ± 0.4'."""
    if deviation is None:
        return format_significant(mean)
    places = decimals(float(f"{mean:.3g}"))
    if 0 < deviation < 0.5 * 0.1**places:  # it would read as ± 0
        places = min(_MOST_DECIMALS, decimals(deviation) - 2)
    return f"{mean:.{places}f} ± {deviation:.{places}f}"


def microseconds(value: float | None) -> str:
    """A time in microseconds, without its unit; empty for none."""
    if value is None:
        return ""
    return f"{value:.1f}" if value < _ONE_DECIMAL_BELOW_US else f"{value:.0f}"


def round_trip(value: float) -> str:
    """A round trip for prose, given in microseconds: '24 µs', '2.01 ms'."""
    if value < _MICROSECONDS_IN_PROSE:
        return f"{microseconds(value)} µs"
    return f"{format_significant(value / 1000)} ms"


def unit_name(unit: str) -> str:
    """A unit for people: 'µs' for 'us', 'µs/chunk' for 'us/chunk'."""
    return re.sub(r"^us\b", "µs", unit)


def amount(value: float, unit: str) -> str:
    """A number with three significant digits and its unit: '80.0 tok/s', '12.3 ms'."""
    return f"{format_significant(value)} {unit_name(unit)}"


def times(ratio: float) -> str:
    """A ratio of speeds, two decimals or two significant digits: '12.40 ×', '0.88 ×', '0.012 ×'."""
    return f"{ratio:.2f} ×" if ratio >= _TENTH else f"{ratio:#.2g} ×"


def percent(fraction: float) -> str:
    """A fraction as a percentage, one decimal below ten: '44 %', '0.8 %'."""
    return f"{fraction * 100:.0f} %" if fraction >= _TENTH else f"{fraction * 100:.1f} %"


def plural(count: int, noun: str) -> str:
    """A count and its noun: '1 node', '2 nodes'."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if _CONSONANT_Y.search(noun) else f"{count} {noun}s"


def some(names: Sequence[str], most: int = 4, separator: str = ", ") -> str:
    """The first of names, and how many there are beside them: 'a, b and 3 more'."""
    more = len(names) - most
    return separator.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Known names that a name may have been meant as, the most alike first; perhaps none."""
    by_text = {one.lower(): one for one in known}
    text = name[:_LONGEST_NAME].lower()
    found = get_close_matches(text, by_text, most)
    if len(text) >= _LEAST_PART:
        found += [one for one in by_text if text in one and one not in found]
    return [by_text[one] for one in found[:most]]


def did_you_mean(name: str, known: Collection[str], most: int = 1) -> str:
    """End a sentence about an unknown name: with the nearest known names, or with all."""
    if near := nearest(name, known, most):
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known: {some([*known], _MOST_LISTED) or 'none'}."


def as_typed(*words: object) -> str:
    """A command in a sentence: 'nixwulf models ls'; without our quotes where it has its own."""
    line = shlex.join(["nixwulf", *map(str, words)])
    return line if "'" in line else f"'{line}'"


def link_name(fabric: str, transport: str) -> str:
    """A fabric and, where it is not TCP, how it is crossed; of an unnamed one, how alone."""
    if not fabric:
        return transport
    return f"{fabric} ({transport})" if transport not in {"", "tcp"} else fabric


def case_name(nodes: int, parallelism: str, link: str) -> str:
    """Name a case by what differs in its setting: '2 nodes, tensor, lan', or 'one node'."""
    if nodes == 1:
        return "one node"
    return ", ".join(filter(None, (plural(nodes, "node"), parallelism, link)))


def unbroken(text: str) -> str:
    """Put no-break spaces between numbers and their units."""
    return re.sub(
        r"(\d) (?=(µs|ms|s|tok/s|Gbit/s|GB/s|Gflop/s|%|×|nodes?)\b|%|×)", "\\1\u00a0", text
    )


def slug(text: str, longest: int, also: str = "") -> str:
    """Keep `longest` lower case letters, digits and what is also kept; '-' for all else."""
    words = re.sub(rf"[^a-z0-9{re.escape(also)}]+", "-", text.lower())
    return words[:longest].strip(f"-{also}")


def fingerprint(document: object) -> str:
    """sha256 of JSON with sorted keys, 64 hexadecimal digits: documents that are equal share it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def login() -> str | None:
    """The name of the user of this process; None where a number has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
