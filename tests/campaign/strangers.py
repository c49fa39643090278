"""A run folder, a sweep or a recipe that somebody else wrote, in the hands of who has secrets.

Each function makes it, and adds the proofs that none of the secrets went anywhere. A server of
tests/support at an address that no cluster file has, prints whatever reaches it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).parents[1] / "support"))

from outside import enter, own_cluster, serve
from stage import Missed, Stage, inside

from canary_endpoint import MODEL
from nixwulf.inventory.cluster import load_cluster
from nixwulf.results.record import save, sealed
from nixwulf.sweep.plan import make_plan, parse_sweep, save_plan
from record_factory import metric, ok

FAR = "10.99.0.1"
PORT = 18080
SECRET = "sk-canary-9f8e7d6c5b4a39281706"  # noqa: S105 - of nobody
NAMES = ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SSH_AUTH_SOCK", "MY_OWN")
_LOOK_S = 0.1
_LOAD = {"n_prompt": [16], "n_gen": [16], "requests": [2]}
_FAR_URL = f"http://{FAR}:{PORT}"


def _served(url: str = _FAR_URL, key: str | None = "OPENAI_API_KEY", **more: Any) -> dict[str, Any]:
    taken = {"environment": [{key: None}]} if key else {}
    return {
        "models": {"it": {"served": MODEL}},
        "matrix": {
            "engine": ["endpoint"],
            "benchmark": ["serve"],
            "model": ["it"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {"url": [url], **_LOAD, **taken, **more},
        },
    }


def _computed(key: str, **more: Any) -> dict[str, Any]:
    return {
        "models": {"it": {"random": {}}},
        "matrix": {
            "model": ["it"],
            "nodes": [2],
            "fabric": ["cable"],
            "parallelism": ["pipeline"],
            "parameters": {
                "n_prompt": [16],
                "n_gen": [16],
                "threads": [1],
                "environment": [{key: None}],
                **more,
            },
        },
    }


_METER = f'meter = {{ kind = "tasmota", url = "http://{FAR}:{PORT}" }}\n'
# What they wrote: the sweep, and what the nodes of their cluster have.
THEIRS: dict[str, tuple[dict[str, Any], str]] = {
    "names the key of a server": (_served(), ""),
    "names the key of a server by https": (_served(f"https://{FAR}:{PORT}"), ""),
    "names an address": (_served(key=None), ""),
    "names a secret for the engine": (_computed("AWS_SECRET_ACCESS_KEY"), ""),
    "names a token for the engine": (_computed("HF_TOKEN"), ""),
    "names the agent of ssh": (_computed("SSH_AUTH_SOCK"), ""),
    "names any variable": (_computed("MY_OWN"), ""),
    "names a meter": (_computed("MY_OWN"), _METER),
}


def stranger(stage: Stage, what: str) -> None:
    """Their files are in the folder 'theirs': t.yaml, and a run of it that ended ok."""
    document, nodes = THEIRS[what]
    own_cluster(stage, nodes)
    far(stage)
    document = {
        "name": "theirs",
        "samples": 1,
        "limits": {"wall_s": 40, "progress_s": 8},
    } | document
    theirs = stage.folder / "theirs"
    (theirs / "records").mkdir(parents=True)
    (stage.folder / "t.yaml").write_text(yaml.safe_dump(document))
    plan = make_plan(parse_sweep(document, "t.yaml"), load_cluster(str(stage.folder / "o.toml")))
    save_plan(plan, theirs / "plan.json")
    (case,) = (one.document() for one in plan.cases)
    name = "decode" if case["benchmark"] != "serve" else "throughput"
    record = ok(case, [metric(name, [90.0], conditions={})])
    save(record, theirs / "records" / f"{record['id']}.json")


def unfinished(stage: Stage, what: str) -> None:
    """The same, whose run is yet to be done."""
    stranger(stage, what)
    for path in (stage.folder / "theirs" / "records").iterdir():
        path.unlink()


def resealed(stage: Stage, key: str) -> None:
    """Their plan has another cluster than any file could, and a digest that is right."""
    unfinished(stage, "names any variable")
    path = stage.folder / "theirs" / "plan.json"
    document = json.loads(path.read_text())
    RESEALED[key](document["cluster"]["document"])
    path.write_text(json.dumps(sealed({k: v for k, v in document.items() if k != "digest"})))


def _fabric(cluster: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = cluster["fabrics"]["cable"]
    return found


RESEALED = {
    "a fabric without mtu": lambda cluster: _fabric(cluster).pop("mtu"),
    "a subnet that is none": lambda cluster: _fabric(cluster).update(subnet="10.91.0.0/99"),
    "a cluster without name": lambda cluster: cluster.pop("name"),
    "a cluster without fabrics": lambda cluster: cluster.pop("fabrics"),
    "nodes that are a text": lambda cluster: cluster.update(nodes="n1"),
    "a node without platform": lambda cluster: cluster["nodes"][0].pop("platform"),
    "a lab of 200,000,000 nodes": lambda cluster: (
        cluster.pop("nodes"),
        cluster.update(lab={"nodes": 200_000_000}),
    ),
    "a lab of 2^63 - 1 nodes": lambda cluster: (
        cluster.pop("nodes"),
        cluster.update(lab={"nodes": 2**63 - 1}),
    ),
    "an option of ssh for an address": lambda cluster: cluster["nodes"][0].update(
        ssh="-oProxyCommand=touch${IFS}run-by-a-stranger"
    ),
    "a command that turns nodes on": lambda cluster: (
        cluster["nodes"][0].update(
            power_switch={"kind": "command", "command": ["touch", "run-by-a-stranger"]}
        )
    ),
}  # fmt: skip
# What is imported, and the words that must be on stderr, or exit 2 where it is to be refused.
RECIPES = {
    "LD_PRELOAD=/tmp/x.so vllm serve org/model": "LD_PRELOAD",
    "PYTHONPATH=/tmp/x vllm serve org/model": "PYTHONPATH",
    "VLLM_PLUGINS=evil vllm serve org/model": "VLLM_PLUGINS",
    "HTTPS_PROXY=http://10.99.0.1:1 vllm serve org/model": "HTTPS_PROXY",
    "HF_ENDPOINT=http://10.99.0.1:1 vllm serve org/model": "HF_ENDPOINT",
    "vllm serve org/model --trust-remote-code": "--trust-remote-code",
    "vllm serve org/model --tool-parser-plugin /tmp/evil.py": "--tool-parser-plugin",
    "vllm serve org/model --middleware evil.module": "--middleware",
    "vllm serve org/model --otlp-traces-endpoint http://10.99.0.1:1": "--otlp-traces-endpoint",
    "vllm serve org/model --hf-token hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345": "hf-token",
    "GH=ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789 vllm serve org/model": "GH",
    "llama-server -m model.gguf --slot-save-path /": "--slot-save-path",
}


def recipe(stage: Stage, text: str) -> None:
    """A recipe that runs code, sends elsewhere or has a secret: it is named before it is kept."""
    (stage.folder / "recipe.txt").write_text(f"{text}\n")

    def proof() -> list[str]:
        said = (stage.folder / "bench.stderr").read_text("utf-8", "replace")
        kept = (stage.folder / "bench.stdout").read_text("utf-8", "replace")
        word = RECIPES[text]
        if word.removeprefix("--") in kept and word not in said:
            return [f"{word} is kept, and nothing is said"]
        secrets = ("hf_AbC", "ghp_AbC")
        return [f"{word} is kept with its secret" for one in secrets if one in kept]

    stage.proofs.append(proof)


def far(stage: Stage) -> None:
    """A server at an address of n1 that is nobody's; the proof that it never got a secret."""
    stage.environment |= dict.fromkeys(NAMES, SECRET)
    subprocess.run([*enter("n1"), "ip", "address", "add", f"{FAR}/32", "dev", "lo"], check=True)
    serve(stage, "canary_endpoint.py", PORT, FAR, enter=enter("n1"))
    stage.must_ask = False
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            for name in ("n1", "n2"):
                with suppress(Missed, OSError):
                    seen.update(_with_secret(name))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()

    def proof() -> list[str]:
        ended.set()
        watching.join()
        asked = (stage.folder / "asked").read_text("utf-8", "replace")
        found = ["a secret was sent to an address that nobody chose"] if SECRET in asked else []
        if asked:
            found.append(f"{len(asked.splitlines())} requests to an address that nobody chose")
        found += [f"a secret is in the environment of {one}" for one in sorted(seen)]
        kept = [*stage.out.rglob("*"), *(stage.folder / "theirs").rglob("*")]
        files = [path for path in kept if path.is_file() and SECRET.encode() in path.read_bytes()]
        found += [f"a secret is in {path.name}" for path in files]
        if (stage.folder / "run-by-a-stranger").exists():
            found.append("a command of a stranger was run")
        return found

    stage.proofs.append(proof)


def _with_secret(name: str) -> set[str]:
    """The programs of a node whose environment has the secret; of the lab's own it has not."""
    found = set()
    for process in inside(name):
        with suppress(OSError):
            folder = Path(f"/proc/{process}")
            if SECRET.encode() in (folder / "environ").read_bytes():
                found.add((folder / "comm").read_text().strip())
    return found
