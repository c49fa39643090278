"""An output as people post it comes in as it was printed, or not at all."""

import re

import pytest

from nixwulf.core.errors import InputError
from nixwulf.outputs.runs import decoded, plain
from nixwulf.results.importing import UserMetadata
from tool_outputs import fixture, records_of

ONE = UserMetadata(("generic-x86_64",), nodes=1)
TABLE = fixture("llama-bench/two-depths.md")


def quoted(text):
    return "".join(f"> {line}\n" for line in text.splitlines())


def html(text):
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    cells = ("".join(f"<td>{cell.strip()}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>".replace("±", "&plusmn;")


def without(text, name):
    head, *_ = text.splitlines()
    at = [cell.strip() for cell in head.split("|")].index(name)
    rows = ([c for n, c in enumerate(line.split("|")) if n != at] for line in text.splitlines())
    return "".join("|".join(row) + "\n" for row in rows)


def saved(text, apart):
    """As a spreadsheet saves a table: cells with the separator in quotes."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if "---" not in line]
    rows = ([cell.strip() for cell in line] for line in lines)
    return "".join(
        apart.join(f'"{cell}"' if apart in cell else cell for cell in row) + "\n" for row in rows
    )


def values(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [m["value"] for one in records_of(path, ONE) for m in one["metrics"]]


@pytest.mark.parametrize(
    "around",
    [
        quoted,
        html,
        # no output: what people put around one
        lambda text: f"Look:\n\n```\n{text}```\n",
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),
        # no output: the lines of a chat
        lambda text: "".join(f"[10:32] bob: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"{line.rstrip('| ')}\n" for line in text.splitlines()),
        lambda text: "".join(f"{line.strip('| ')}\n" for line in text.splitlines()),
        lambda text: text.replace("±", "+/-"),
        lambda text: text.replace("|", "│"),
        lambda text: re.sub(r" ([\d.]+ ± [\d.]+) \|", r" **\1** |", text),
        # no output: a table as it is copied from a page
        lambda text: "".join(
            "\t".join(cell.strip() for cell in line.strip("|").split("|")) + "\n"
            for line in text.splitlines()
            if "---" not in line
        ),
        lambda text: saved(text, ","),
        lambda text: saved(text, ";"),
        lambda text: saved(text.replace(".", ","), ";"),
        lambda text: saved(text.replace(".", ","), ","),
        lambda text: text.replace("±", "Â±"),
        lambda text: text.replace(".", ","),
        lambda text: text.replace("| llama", "\x1b[32m| llama"),
        lambda text: without(text, "backend"),
        lambda text: without(without(text, "size"), "params"),
    ],
)
def test_a_table_in_other_clothes_has_the_same_numbers(tmp_path, around):
    path = tmp_path / "output.txt"
    assert values(path, around(TABLE)) == values(path, TABLE) != []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9.626,13 ms, 229.711 tokens", "9626.13 ms, 229711 tokens"),
        ("12,5 t/s", "12.5 t/s"),
        ("12,345.67 t/s", "12345.67 t/s"),
        ("1,234 tokens at 5.5 t/s", "1234 tokens at 5.5 t/s"),
        ("261,786 tokens-per-sec", "261,786 tokens-per-sec"),
        ("a,1,2,3", "a,1,2,3"),
        ("1'261.5 t/s of 2\u202f048 tokens", "1261.5 t/s of 2048 tokens"),
        ("1 20 300", "1 20 300"),
        ("at 10.0.0.2:50052, v1.2,", "at 10.0.0.2:50052, v1.2,"),
    ],
)
def test_numbers_of_other_locales_have_a_point_and_ambiguous_ones_stay(text, found):
    assert plain(text) == found


def test_ends_of_lines_are_of_one_kind():
    # no output: bytes that no program prints
    assert decoded(b"\xef\xbb\xbfa\rb\r\nc\n") == "a\nb\nc\n"


def test_a_table_without_its_backend_asks_for_the_nodes(tmp_path):
    path = tmp_path / "output.txt"
    path.write_text(without(TABLE, "backend"))
    with pytest.raises(InputError, match="does not state the number of nodes .*add --nodes"):
        records_of(path, UserMetadata(("generic-x86_64",)))


def test_plain_blanks_between_thousands_are_none_in_a_text_that_has_them_with_decimals():
    # no output: numbers as some locales write them
    text = "Duration (s):   1 234,50\nTokens:   217 393\nRate:   0,81\nSizes: 128 256 512\n"
    assert plain(text).split("\n")[:3] == [
        "Duration (s):   1234.50",
        "Tokens:   217393",
        "Rate:   0.81",
    ]
    # no output: numbers beside each other
    assert plain("Sizes: 128 256 512\n") == "Sizes: 128 256 512\n"


def test_thousands_behind_a_bullet_are_one_number(records):
    # hand-made: without blanks around its bullets (form: https://lmstudio.ai/docs/app)
    text = "8.42 tok/sec\u20221,204 tokens\u20223.11s to first token\n"
    (record,) = records(text, ONE)
    assert record["metrics"][0]["conditions"] == {"n_gen": 1204}


def test_a_bold_mean_with_a_plain_deviation_is_a_speed(records):
    head = ["| model | backend | test | t/s |", "| --- | --- | --- | --- |"]
    row = "| llama 8B Q4_0 | CUDA | tg128 | **51.20** \u00b1 0.10 |"
    (record,) = records("\n".join([*head, row]), ONE)
    assert (record["metrics"][0]["value"], record["metrics"][0]["stddev"]) == (51.2, 0.1)
