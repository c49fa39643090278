"""What a server's configuration of drafts is in a sweep: a kind or a model, and tokens a step.

https://docs.vllm.ai/en/latest/features/speculative_decoding/
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from nixwulf.plugins.runtime import speculation
from nixwulf.sweep.recipes.recipe import Omission

_TOKENS = "num_speculative_tokens"
_OF_THE_MODEL = "mtp"  # deepseek_mtp, qwen3_next_mtp, ... are older names of it


@dataclass(frozen=True)
class Drafting:
    """kind: of speculation.KINDS; empty where a sweep has no such draft. model: of MODEL.

    tokens: for a step; 0 where it has no number of them.
    """

    kind: str
    model: str = ""
    tokens: int = 0
    left_out: tuple[Omission, ...] = ()


def read(text: str, flag: str) -> Drafting:
    """The value of a flag that has drafts as JSON.

    A model's method is left to the engine, which sees by its files what kind of head it is.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return Drafting("", left_out=(Omission(flag, "its value is no JSON object"),))
    method, model = document.get("method"), document.get("model")
    tokens = document.get(_TOKENS)
    known = {"method", _TOKENS}
    if isinstance(model, str) and model:
        kind = speculation.MODEL
        known.add("model")
    elif isinstance(method, str) and method.rpartition("_")[2] == _OF_THE_MODEL:
        kind = speculation.MTP
    elif method == speculation.NGRAM:
        kind = speculation.NGRAM
    else:
        why = f"the parameter draft has no such method, {json.dumps(method)}"
        return Drafting("", left_out=(Omission(shlex.join([flag, text]), why),))
    rest = {key: one for key, one in document.items() if key not in known}
    why = "the parameter draft has no such option"
    return Drafting(
        kind,
        str(model) if kind == speculation.MODEL else "",
        tokens if isinstance(tokens, int) and tokens > 0 else 0,
        tuple(Omission(f"{key} {json.dumps(one)} of {flag}", why) for key, one in rest.items()),
    )
