"""How well `session` agrees with the server that it measures: its own counts and its own clock.

Usage: .venv/bin/python tools/session_figures.py RUN_FOLDER    (one of sweeps/lab/session.yaml)

The share of a prompt from the cache is that of usage, against the tokens that the server's timings
say it computed. Time to first token is the client's, over ssh, against the server's prompt_ms, for
one session at a time: of several, prompt_ms does not have the wait for the others.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

WORSE = 0.95  # share of turns that are no farther off than the figure


def main(folder: Path) -> None:
    """Print the table of a run's cases, then both figures over all."""
    apart, late = [], []
    print("sessions cache  api          turn  prompt  cached  share %  by timings  TTFT/prompt_ms")
    for path in sorted((folder / "records").glob("*.json")):
        record = json.loads(path.read_text())
        asked = record["case"]["parameters"]
        lines = (folder / "raw" / record["id"] / "answers.jsonl").read_text().splitlines()
        answers = sorted(map(json.loads, lines), key=lambda answer: int(answer["turn"]))
        for turn, of_turn in groupby(answers, key=lambda answer: int(answer["turn"])):
            several = list(of_turn)
            shares = [shares_of(answer) for answer in several]
            ratios = [answer["came"][0] / answer["timings"]["prompt_ms"] for answer in several]
            apart += [abs(one - other) for one, other in shares]
            late += ratios if asked["concurrency"] == 1 else []
            print(
                f"{asked['concurrency']:8} {asked['cache']:6} {asked['api']:12} {turn:4}"
                f"{median(one['prompt_tokens'] for one in several):8.0f}"
                f"{median(one['cached_tokens'] for one in several):8.0f}"
                f"{median(one for one, _ in shares):9.2f}{median(one for _, one in shares):12.2f}"
                f"{median(ratios):16.3f}"
            )
    off, middle = sorted(abs(ratio - 1) for ratio in late), median(late) - 1
    print(f"\n{len(apart)} turns: shares differ by at most {max(apart):.2f} points")
    print(
        f"{len(off)} turns of one session at a time: TTFT is {100 * middle:.1f} % above "
        f"prompt_ms in the median, {100 * off[int(WORSE * len(off))]:.1f} % in 95 of 100, "
        f"{100 * off[-1]:.1f} % at most"
    )


def shares_of(answer: dict[str, Any]) -> tuple[float, float]:
    """Percent of a prompt that came from the cache: by usage, and by what was computed."""
    whole = answer["prompt_tokens"]
    computed = answer["timings"]["prompt_n"]
    return 100 * answer["cached_tokens"] / whole, 100 * (whole - computed) / whole


if __name__ == "__main__":
    main(Path(sys.argv[1]))
