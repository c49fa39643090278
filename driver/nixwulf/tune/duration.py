"""How long measuring a way takes: loading, checking the text, warming up, the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_START_S = 15.0  # chosen; facts, gates, and the link before a run and after it
_LAB_START_S = 4.0
_DISK = 2e9  # bytes a second: chosen, half of what an NVMe disk reads
_LOADS = 3  # one node for the text to compare with, the way itself for its own, the benchmark
_CHECKED = 64  # tokens: twice phases.SANITY_TOKENS
_PROMPT_OVER_DECODE = 10.0  # of machines whose compute is not known


def seconds(
    *,
    is_lab: bool,
    weight_bytes: float,
    moved_bytes_a_second: float,
    moved_share: float,
    decode: float,
    prompt: float | None,
    sequence: tuple[int, int],
    passes: float,
) -> float:
    """The estimated duration of one run, in seconds.

    Args:
        is_lab: whether the nodes are those of the lab, which start sooner.
        weight_bytes: size of the model.
        moved_bytes_a_second: bandwidth of the fabric; unused where moved_share is 0.
        moved_share: share of the weights that cross the fabric, as llama.cpp's do, 0 to 1.
        decode: tokens a second of one sequence.
        prompt: tokens of a prompt read a second; None where it is not predicted.
        sequence: tokens of the prompt and of the answer.
        passes: repetitions of the sequence, the one that warms up included.
    """
    n_prompt, n_gen = sequence
    once = weight_bytes / _DISK
    if moved_share:
        once += moved_share * weight_bytes / moved_bytes_a_second
    reading = n_prompt / (prompt or _PROMPT_OVER_DECODE * decode)
    start = _LAB_START_S if is_lab else _START_S
    return start + _LOADS * once + _CHECKED / decode + passes * (reading + n_gen / decode)


def correction(estimated: Sequence[float], took: Mapping[int, float]) -> float:
    """By which factor the runs so far took longer than estimated."""
    known = sum(estimated[n] for n in took)
    return sum(took.values()) / known if known else 1.0
