"""llama.cpp with a GPU, which may be one in software: a Vulkan device of Mesa's llvmpipe.

NIXWULF_GPU_PROGRAMS names the folder of its programs; without it those on PATH are asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_under_test import Silent

from nixwulf.inventory.cluster import load_cluster
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep
from stand_in import put

PROGRAMS = ("llama-bench", "llama-server", "ggml-rpc-server")
# Files of a node that change what its programs meet: /run is each node's own.
WRAPPER = """
if [ -e /run/no-gpu ]; then export GGML_VK_VISIBLE_DEVICES=; fi
if [ -e /run/vanished-gpu ] && [ {name} != llama-bench ]; then export GGML_VK_VISIBLE_DEVICES=; fi
if [ -e /run/full-gpu ]; then
  export GGML_VK_FORCE_MAX_ALLOCATION_SIZE=20000 GGML_VK_FORCE_MAX_BUFFER_SIZE=20000
fi
if [ -e /run/wrong-gpu ]; then
  case " $* " in *" Vulkan0 "*)
    for word; do
      shift
      case $word in *.gguf) word=$(cat /run/wrong-gpu) ;; esac
      set -- "$@" "$word"
    done
  esac
fi
if [ -e /run/silent ] && [ {name} = llama-server ] && [ "$1" = -m ]; then exec sleep 1000; fi
exec {program} "$@"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder wants a GPU, and compiles its shaders first."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(900))


def programs_with_a_gpu() -> dict[str, str] | None:
    """The programs of llama.cpp that list a Vulkan device, by name."""
    search = os.environ.get("NIXWULF_GPU_PROGRAMS") or os.environ["PATH"]
    found = {name: shutil.which(name, path=search) for name in PROGRAMS}
    places = {name: str(Path(place).resolve()) for name, place in found.items() if place}
    if len(places) < len(PROGRAMS):
        return None
    command = [places["llama-bench"], "--list-devices"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return places if "Vulkan0: " in done.stdout else None


@pytest.fixture(scope="module")
def gpu_on_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """PATH begins with llama.cpp's programs, which have a GPU; its folder.

    For this folder's module only: the tests of the lab after it compute on the CPU.
    """
    programs = programs_with_a_gpu()
    if programs is None:
        pytest.skip(
            "No llama.cpp with a Vulkan device: name the folder of its programs in "
            "NIXWULF_GPU_PROGRAMS, or put it first on PATH (docs/engines.md)."
        )
    folder = tmp_path_factory.mktemp("gpu")
    for name, program in programs.items():
        put(folder, name, WRAPPER.format(name=name, program=program))
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    yield folder
    os.environ["PATH"] = before


@pytest.fixture(scope="module")
def nodes(gpu_on_path: Path, state_base: Path) -> Iterator[session.Session]:
    """Three nodes of the lab, each with a GPU."""
    matrix = {"model": ["m"], "nodes": [3], "fabric": ["rdma-like"], "parallelism": ["pipeline"]}
    document = {"name": "gpu", "models": {"m": {"random": {}}}, "matrix": matrix}
    plan = make_plan(parse_sweep(document, "gpu.yaml"), load_cluster("lab"))
    with session.session(session.of_used_nodes(plan, [*plan.runs()]), Silent()) as connected:
        yield connected
