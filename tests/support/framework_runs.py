"""Runs on Framework Desktops, whose speeds the model predicts."""

import copy

from nixwulf.inventory.platforms import load_platform
from nixwulf.perf.inputs import FabricFacts, Strategy, age_of, day_of, platform_facts
from nixwulf.perf.predict import predict
from nixwulf.perf.scenarios.facts import read_model
from nixwulf.results import record
from record_factory import case, metric, ok

# no output: parts of a record
LLAMA = {"name": "Llama-3.1-70B", "weights": "Q4_K_M", "bytes": 42_520_000_000}
# no output: parts of a record
DECODE = {"n_prompt": 0, "n_gen": 128, "n_depth": 0}
# no output: parts of a record
PROMPT = {"n_prompt": 512, "n_gen": 0, "n_depth": 0}


def of_frameworks(speed, *, nodes=2, name="decode", split="pipeline", **changes):
    """A run on Framework Desktops, by Thunderbolt, of a model whose facts are known."""
    kind = changes.pop("kind", "thunderbolt-net")
    conditions = changes.pop("conditions", DECODE if name == "decode" else PROMPT)
    of = case(nodes, "cable", split, model=LLAMA["name"])
    one = copy.deepcopy(ok(of, [metric(name, [speed], conditions=conditions)], rtt_us=240, gbps=9))
    for node in one["nodes"]:
        node["platform"] = "framework-desktop"
    one["cluster"] = {"name": "two", "platforms": ["framework-desktop"], "lab": False}
    one["model"] = dict(LLAMA)
    one["engine"]["backends"] = "ROCm,RPC"
    if nodes > 1:
        one["fabric"] |= {"kind": kind, "speed_gbps": 20}
    facts = changes.pop("facts", {})
    one["nodes"][0]["facts"] |= facts
    return record.sealed({**one, **changes})


def predicted(nodes=2, split="pipeline", name="decode"):
    """What the model says of such a run."""
    node = platform_facts(load_platform("framework-desktop"))
    model = read_model(LLAMA["name"], size_gib=LLAMA["bytes"] / 2**30).facts
    conditions = DECODE if name == "decode" else PROMPT
    strategy = Strategy(
        "llama.cpp",
        split if nodes > 1 else "single",
        n_prompt=conditions["n_prompt"],
        backend="rocm",
        age=age_of(day_of("", of_frameworks(1.0)["started"])),
    )
    link = FabricFacts("thunderbolt-net", "tcp", 240, 9) if nodes > 1 else None
    return predict([node] * nodes, model, strategy, link, metric=name)
