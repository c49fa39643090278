"""A fault trial as data: the cases of a run, what a fault may come to, and the kinds of faults."""

from __future__ import annotations

from dataclasses import dataclass, field

# Cases, each of a few seconds on two nodes; 'long-' ones last until a fault ends them.
CASES = {
    "iperf3": {"matrix": {"benchmark": ["iperf3"], "parameters": {"seconds": [2]}}},
    "tiny": {
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "model": ["tiny"],
            "parallelism": ["pipeline"],
            "parameters": {"n_prompt": [16], "n_gen": [16], "threads": [1]},
        },
    },
    "long-tiny": {
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "model": ["tiny"],
            "parallelism": ["pipeline"],
            "parameters": {"n_prompt": [0], "n_gen": [150], "threads": [1]},
        },
        "samples": 5,
    },
    "served": {
        "models": {"it": {"served": "mine"}},
        "matrix": {
            "engine": ["endpoint"],
            "benchmark": ["serve"],
            "model": ["it"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {
                "url": ["http://127.0.0.1:18080"],
                "n_prompt": [16],
                "n_gen": [16],
                "requests": [2],
            },
        },
    },
    # The fault is in the first; the second shows that the sweep goes on.
    "two": {"matrix": {"benchmark": ["iperf3"], "parameters": {"seconds": [3, 1]}}},
    "two-tiny": {
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "model": ["tiny"],
            "parallelism": ["pipeline"],
            "parameters": {"n_prompt": [16], "n_gen": [64, 16], "threads": [1]},
        },
    },
}
WALL_S = 40
PROGRESS_S = 8

OK = frozenset({"ok"})
BROKEN = frozenset({"failed", "hang", "timeout"})
REFUSED = frozenset({"skipped"})
UNPROVED = frozenset({"fallback", "gibberish", "unsupported"})
ANY = OK | BROKEN | REFUSED | UNPROVED
NONE: frozenset[str] = frozenset()


# The same of what is outside of the driver, its nodes and its files.
OUTSIDE = {
    "hostile_endpoint": "hostile endpoint",
    "hostile_hub": "hostile hub",
    "hostile_meter": "hostile meter",
    "hostile_peer": "hostile peer",
    "stranger": "stranger's folder",
    "unfinished": "stranger's folder",
    "resealed": "stranger's folder",
    "recipe": "stranger's folder",
    "few_threads": "threads and limits",
    "limited": "threads and limits",
    "odd_variable": "threads and limits",
    "odd_runtime": "threads and limits",
}
# What the functions of faults.py do, for a table.
KINDS = {
    "signal_driver": "driver interrupted or killed",
    "pause_driver": "driver stopped for a while",
    "end_node": "node lost",
    "signal_on": "program of a node killed or stopped",
    "link_down": "link down",
    "shape": "link lossy or slow",
    "garbage_to": "garbage on a port",
    "damage": "damaged program or output of it",
    "greeting": "login shell that prints",
    "fill_on": "node's disk full",
    "signal_supervisor": "lab killed or stopped",
    "ulimit": "limits of the shell",
    "redirect": "streams closed or full",
    "environment": "environment and clock",
    "small_disk": "driver's disk full",
    "folder_full": "driver's disk full",
    "folder_read_only": "run folder read-only, gone or damaged",
    "folder_gone": "run folder read-only, gone or damaged",
    "folder_raw_is_a_file": "run folder read-only, gone or damaged",
    "damage_file": "record or plan damaged",
    "resume_twice": "two drivers in one folder",
    "signal_masters": "shared connections killed or stopped",
    "lab_down": "lab killed or stopped",
    "references": "record or plan damaged",
    **OUTSIDE,
}


@dataclass(frozen=True)
class Trial:
    """A fault in a phase of a case, and the ends that are as promised.

    at: the phase or step that it is done in, '' before the driver starts, 'after' to the folder of
    a run; after_s seconds later. fault: a function of faults.py, with its arguments. outcomes: of
    the first run's record; NONE: there is none. second: of the second, NONE for a case of one run.
    codes: exit codes. limit_s: from the fault to the driver's end,
    less the ten seconds that a run may take besides. resumed: the run is gone on with to its end.
    command: of the driver, in the place of a run of the case.
    """

    name: str
    case: str
    at: str
    fault: str
    arguments: tuple[str, ...] = ()
    outcomes: frozenset[str] = ANY
    codes: frozenset[int] = frozenset({0, 1, 3})
    limit_s: float = WALL_S
    after_s: float = 0.1
    environment: dict[str, str] = field(default_factory=dict)
    resumed: bool = False
    second: frozenset[str] = NONE
    command: tuple[str, ...] = ()
