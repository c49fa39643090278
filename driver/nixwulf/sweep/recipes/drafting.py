"""What a server's configuration of drafts is in a sweep: the parameters draft and draft_tokens.

https://docs.vllm.ai/en/latest/features/speculative_decoding/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nixwulf.plugins.runtime import speculation

_TOKENS = "num_speculative_tokens"
_OF_THE_MODEL = "mtp"  # deepseek_mtp, qwen3_next_mtp, ... are older names of it


@dataclass
class Drafting:
    """What flags say of a draft; model: a name on Hugging Face or a path; tokens: for a step.

    more: further keys, for the engine as they are. broken: why nothing can be read; or empty.
    """

    method: str = ""
    model: str = ""
    tokens: int = 0
    more: dict[str, Any] = field(default_factory=dict)
    broken: str = ""

    def read_json(self, text: str) -> None:
        """Take the value of a flag that has drafts as JSON."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, Mapping):
            self.broken = "its value is no JSON object"
            return
        self.more = dict(document)
        method, model = self.more.pop("method", None), self.more.pop("model", None)
        tokens = self.more.pop(_TOKENS, 0)
        if not (isinstance(method, str) and method) and not (isinstance(model, str) and model):
            self.broken = "it has no method and no model"
            return
        self.method, self.model = str(method or ""), str(model or "")
        self.tokens = tokens if isinstance(tokens, int) and tokens > 0 else 0

    @property
    def words(self) -> dict[str, Any]:
        """Method, tokens and further keys as under `draft` of a sweep, without the model.

        A word that every engine has is that word: then nothing of this is left.
        """
        method = self.method
        if method.rpartition("_")[2] == _OF_THE_MODEL and not self.model:
            method = speculation.MTP
        plain = not self.more and (not method or not self.model)
        if plain and method in ("", speculation.MTP, speculation.NGRAM):
            return {}
        given = {"method": method, "tokens": self.tokens, **self.more}
        return {key: one for key, one in given.items() if one not in ("", 0)}
