"""Ask the threads that data/known_bad.toml cites whether they were closed since they were read.

Usage: .venv/bin/python tools/ask_sources.py

A thread that is closed may name a mend, another cause or other versions than its entry: read it,
correct the entry, and set its `read` to the day. Exit code 1 for a thread that was closed since,
that is elsewhere now, or that gave no answer. GITHUB_TOKEN is used where it is set: without it
GitHub answers 60 requests an hour.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from nixwulf.core import web
from nixwulf.core.errors import quoted
from nixwulf.plugins.gates.kernel import table

_THREAD = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", re.ASCII)
_API = "https://api.github.com"
_S = 30.0  # of an answer


def main() -> int:
    """Print a sentence for each thread that somebody has to look at; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--api", default=_API, help="Where GitHub's REST API is (default: its own)")
    api = parser.parse_args().api
    cited = list(threads(table()))
    found = [words for name, read, url in cited if (words := look(api, name, read, url))]
    print("\n".join(found) or f"None of {len(cited)} threads was closed since it was read.")
    return 1 if found else 0


def threads(entries: dict[str, dict[str, Any]]) -> Iterator[tuple[str, date, str]]:
    """Each thread that an entry cites: the entry's name, the day of reading, the address."""
    for name, entry in entries.items():
        for url in (entry["source"], *entry.get("see_also", ())):
            yield name, date.fromisoformat(entry["read"]), url


def look(api: str, name: str, read: date, url: str) -> str | None:
    """Why somebody has to look at a thread, or None.

    Args:
        api: where the REST API is.
        name: the entry that cites it.
        read: the day on which it was read last.
    """
    place = _THREAD.fullmatch(url)
    if place is None:
        return f"{name}: {url!r} is no issue or pull request of GitHub; look at it by hand."
    token = os.environ.get("GITHUB_TOKEN")
    headers = {"Accept": "application/vnd.github+json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    path = f"/repos/{place[1]}/issues/{place[2]}"
    try:
        answer = web.fetch(web.client(api, headers=headers, proxies=True), "GET", path, _S)
    except web.NoAnswer as error:
        return f"{name}: {url} gave no answer ({error.message}); ask again."
    if not answer.ok:
        return f"{name}: {url} is answered with status {answer.status}; look at it by hand."
    found = answer.json
    try:
        closed = found["closed_at"] and datetime.fromisoformat(found["closed_at"]).date()
    except (KeyError, TypeError, ValueError):
        return f"{name}: {url} is answered with {quoted(answer.text)}; look at it by hand."
    if closed and closed >= read:
        how = f", as {found['state_reason']}" if found.get("state_reason") else ""
        return f"{name}: {url} was closed on {closed}{how}, and was read on {read}; read it again."
    return None


if __name__ == "__main__":
    raise SystemExit(main())
