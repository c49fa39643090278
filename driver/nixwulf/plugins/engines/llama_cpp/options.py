"""Options of llama.cpp's programs: what a sweep can vary, and the flags of each build for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nixwulf.core.registry import parameters_of
from nixwulf.inventory.fabrics import Attachment
from nixwulf.plugins.runtime import speculation
from nixwulf.plugins.runtime.memory import SPLITS
from nixwulf.plugins.runtime.run import RunFailure

# What the names of a back end's devices begin with, as --list-devices prints them; a build with
# several is used by the first that lists one, where neither case nor platform names another.
DEVICE_PREFIXES = {
    "cuda": ("CUDA",),
    "metal": ("MTL", "Metal"),
    "vulkan": ("Vulkan",),
    "rocm": ("ROCm",),
}
PARAMETERS = parameters_of("llama.cpp", backend=("any", "cpu", *DEVICE_PREFIXES), split=SPLITS)
_FLAGS = {"threads": "-t", "n_batch": "-b", "n_ubatch": "-ub", "type_k": "-ctk", "type_v": "-ctv"}

# By the name of a flag in --help, newest first. llama.cpp merged --mmap and --direct-io into
# --load-mode, and gave --flash-attn three values; a build has one form of each.
_LOAD_OF_BENCH = {
    "--load-mode": {"mmap": ["-lm", "mmap"], "none": ["-lm", "none"], "dio": ["-lm", "dio"]},
    "--direct-io": {"mmap": ["-mmp", "1"], "none": ["-mmp", "0"], "dio": ["-dio", "1"]},
    "--mmap": {"mmap": ["-mmp", "1"], "none": ["-mmp", "0"]},
}
_LOAD_OF_SERVER = {
    "--load-mode": {"mmap": ["-lm", "mmap"], "none": ["-lm", "none"], "dio": ["-lm", "dio"]},
    "--direct-io": {"mmap": ["--mmap"], "none": ["--no-mmap"], "dio": ["--direct-io"]},
    "--no-mmap": {"mmap": [], "none": ["--no-mmap"]},
}
# By the kind of draft: the name of its kind, and the flag of its tokens for a step.
_DRAFTS = {
    speculation.MODEL: ("draft-simple", "--spec-draft-n-max"),
    speculation.MTP: ("draft-mtp", "--spec-draft-n-max"),
    speculation.NGRAM: ("ngram-simple", "--spec-ngram-simple-size-m"),
    speculation.METHOD: ("", "--spec-draft-n-max"),
}
_FLASH_ATTENTION = {
    "--flash-attn auto": {"on": ["-fa", "on"], "off": ["-fa", "off"]},
    "--flash-attn 0|1": {"on": ["-fa", "1"], "off": ["-fa", "0"]},
}


def offered(help_text: str) -> set[str]:
    """The long flags of a program's --help, and which form of --flash-attn it takes."""
    flags = set(re.findall(r"(?<![\w-])(--[a-z][\w-]*)", help_text))
    values = re.search(r"--flash-attn\s+[<\[]([^>\]]*)", help_text)
    if values:
        flags.add("--flash-attn auto" if "auto" in values[1] else "--flash-attn 0|1")
    return flags


def rpc_problem(program: str, help_text: Collection[str]) -> str | None:
    """What is wrong with a build that has no RPC, by the help of a program of it, or its flags."""
    if "--rpc" in help_text:
        return None
    return (
        f"llama.cpp without RPC: its '{program} --help' has no '--rpc'; deploy the flake's, or "
        "build it with -DGGML_RPC=ON."
    )


def common(parameters: Mapping[str, object]) -> list[str]:
    """What llama-bench and llama-server take alike: what differs from a program's default."""
    return [
        word
        for key, flag in _FLAGS.items()
        if parameters.get(key, PARAMETERS[key].default) != PARAMETERS[key].default
        for word in (flag, str(parameters[key]))
    ]


def of_bench(parameters: Mapping[str, object], flags: Collection[str]) -> list[str]:
    """What llama-bench alone takes; raises RunFailure unsupported for what its build lacks."""
    return _both("llama-bench", parameters, flags, _LOAD_OF_BENCH) + (
        ["--repack", "0"] if "--repack" in flags else []
    )


def of_server(parameters: Mapping[str, object], flags: Collection[str]) -> list[str]:
    """What llama-server alone takes; raises RunFailure unsupported for what its build lacks."""
    return [
        *_both("llama-server", parameters, flags, _LOAD_OF_SERVER),
        *(["--no-repack"] if "--no-repack" in flags else []),
        # It is on by default, and would change the case's options to make it fit.
        *(["--fit", "off"] if "--fit" in flags else []),
    ]


def verbose(flags: Collection[str]) -> list[str]:
    """What makes llama-server print its devices, the layers on them and RDMA, while it loads."""
    return ["-lv", "4"] if "--log-verbosity" in flags else []


def of_draft(
    parameters: Mapping[str, object], model: str, gpus: Sequence[str], flags: Collection[str]
) -> list[str]:
    """What llama-server takes to draft: a model runs on the head alone.

    model: path of its draft model, empty without one. gpus: of the head, by the names that its
    build lists.

    Raises RunFailure: unsupported, by a build that lacks the kind; a draft model without
    --spec-type drafts nothing in silence.
    """
    if not speculation.speculates(parameters):
        return []
    if "--spec-type" not in flags:
        raise RunFailure("This build of llama-server has no '--spec-type'.", "unsupported")
    draft = speculation.of(parameters)
    name, count = _DRAFTS[draft.kind]
    words = ["--spec-type", draft.method or name]
    if model:
        layers = "999" if gpus else "0"
        words += ["-md", model, "-devd", ",".join(gpus) or "none", "-ngld", layers]
    words += [count, str(draft.tokens)] if draft.tokens else []
    return [*words, *speculation.flags("--spec-", draft.more)]


def _both(
    program: str,
    parameters: Mapping[str, Any],
    flags: Collection[str],
    load: Mapping[str, Mapping[str, list[str]]],
) -> list[str]:
    words = []
    for key, forms in (("load", load), ("flash_attn", _FLASH_ATTENTION)):
        value = parameters.get(key, "auto")
        if value == "auto":
            continue
        form = next((by_value for flag, by_value in forms.items() if flag in flags), {})
        if value not in form:
            raise RunFailure(f"This build of {program} has no {key} {value!r}.", "unsupported")
        words += form[value]
    return words


def environment(
    parameters: Mapping[str, object], transport: str | None, attachment: Attachment | None
) -> dict[str, str]:
    """Variables of every program on a node.

    RDMA is negotiated silently, so tcp has to forbid it: builds before August 2026 do not know
    GGML_RPC_NO_RDMA, and all on Linux skip every device whose name is not that of GGML_RDMA_DEV.

    transport: "tcp" or "rdma"; None on one node. attachment: the node's place on the fabric; None
    on one node.
    """
    # Without the first a backtrace of the debugger lands on stdout, between the results.
    variables = {"GGML_NO_BACKTRACE": "1"}
    if parameters.get("host_memory"):
        variables["GGML_VK_PREFER_HOST_MEMORY"] = "1"
    if transport == "tcp":
        variables |= {"GGML_RPC_NO_RDMA": "1", "GGML_RDMA_DEV": "none"}
    elif transport == "rdma" and attachment is not None:
        if attachment.rdma_device is not None:
            variables["GGML_RDMA_DEV"] = attachment.rdma_device
        if attachment.gid_index is not None:
            variables["GGML_RDMA_GID"] = str(attachment.gid_index)
    return variables


def listed_devices(text: str) -> tuple[str, ...]:
    """The names of the lines '  Vulkan0: AMD Radeon ... (MiB, MiB free)' with memory of their own.

    OpenBLAS and the like are listed with none, and the CPU in some builds: no layer is put there.
    """
    found = re.findall(r"^ +(\w+): .*\((\d+) MiB, \d+ MiB free\)", text, re.MULTILINE)
    return tuple(name for name, memory in found if int(memory) > 0 and name != "CPU")


def devices_of(backend: str, listed: Collection[str]) -> tuple[str, ...]:
    """The devices of a back end among those that a node lists."""
    return tuple(name for name in listed if name.startswith(DEVICE_PREFIXES[backend]))
