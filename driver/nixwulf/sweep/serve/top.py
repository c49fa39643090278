"""What is served on a cluster's nodes, on one screen of 80 columns, as the watches see it."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live

from nixwulf.core.document import Column, Table, output, rich_table
from nixwulf.core.text import GIB, clean, plural
from nixwulf.sweep.serve import control
from nixwulf.sweep.serve.control import LiveService, Nodes
from nixwulf.sweep.serve.seen import SeenNode, SeenService

EVERY_S = 2.0
_KEYS = "next service: n, previous: p, end: q"


def look(nodes: Nodes) -> list[tuple[LiveService, SeenService]]:
    """Each service with what its watch saw last; raises Unreachable where no node answers."""
    return [(live, control.status(live)) for live in control.find_all(nodes)]


def screen(live: LiveService, seen: SeenService, more: str = "") -> RenderableType:
    """One service: its URL, its servers and its nodes."""
    service = live.service
    watched = f"as of {seen.get('at', 'never')}" if seen["watched"] else "NOBODY WATCHES IT"
    head = (
        f"{service.name}: {service.engine}, {plural(len(service.groups), 'server')}, {service.url}"
    )
    servers = [
        [
            name,
            one["state"],
            _cell(one.get("requests")),
            _cell(one.get("queued")),
            _cell(one.get("prompt_per_s"), 0),
            _cell(one.get("decode_per_s"), 1),
            _cell(one.get("still_s"), 0),
            _cell(one.get("restarts")),
        ]
        for name, one in seen["servers"].items()
    ]
    of_servers = (
        "server",
        "state",
        "held",
        "queued",
        "prompt tok/s",
        "tok/s",
        "still s",
        "restarts",
    )
    nodes = [[name, *_of_node(one)] for name, one in seen["nodes"].items()]
    of_nodes = ("node", "cores", "W", "°C", "MHz", "free GiB", "fabric MB/s", "errors")
    whys = [clean(f"{k}: {one['why']}") for k, one in seen["servers"].items() if one["why"]]
    return Group(
        clean(head),
        watched,
        "",
        rich_table(_table(of_servers, servers, text=2)),
        "",
        rich_table(_table(of_nodes, nodes, text=1)),
        *whys,
        *([more] if more else []),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], text: int) -> Table:
    columns = [Column(head, number=at >= text, whole=True) for at, head in enumerate(heads)]
    return Table(columns, rows)


def _of_node(one: SeenNode | None) -> list[str]:
    if one is None:
        return ["no answer", *[""] * 6]
    cores = [unit["cores"] for unit in one["units"].values() if unit["cores"] is not None]
    free, carried = one["available_bytes"], one["fabric_per_s"]
    return [
        _cell(sum(cores) if cores else None, 2),
        _cell(one["watts"], 0),
        _cell(max(one["celsius"].values(), default=None), 0),
        _cell(max(one["mhz"].values(), default=None), 0),
        _cell(free and free / GIB, 1),
        _cell(carried and carried / 1e6, 1),
        _cell(sum(one["fabric_errors"].values()) if one["fabric_errors"] else None),
    ]


def _cell(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


@contextmanager
def _keys() -> Iterator[None]:
    """Standard input key by key, as it was afterwards."""
    before: list[Any] = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def show(nodes: Nodes) -> None:
    """Show one service after the other's keys until 'q' or Ctrl-C; raises Unreachable."""
    chosen = 0
    with _keys(), Live(console=output(), screen=True, auto_refresh=False) as live:
        while True:
            found = look(nodes)
            chosen %= max(1, len(found))
            more = f"{chosen + 1} of {len(found)}; {_KEYS}"
            view = screen(*found[chosen], more) if found else f"Nothing is served here. {_KEYS}"
            live.update(view, refresh=True)
            until = time.monotonic() + EVERY_S
            while (left := until - time.monotonic()) > 0:
                if not select.select([sys.stdin], [], [], left)[0]:
                    continue
                key = sys.stdin.read(1)
                if key in ("q", ""):
                    return
                chosen += {"n": 1, "p": -1}.get(key, 0)
                break
