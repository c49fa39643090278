"""mtp-bench: decode of llama-server over a set of prompts, with or without drafted tokens."""

from __future__ import annotations

from nixwulf.outputs import mtp_bench as parser
from nixwulf.outputs.importers import Found, Tool, metric, model_of


def _read(text: str) -> list[Found]:
    found = parser.parse(text)
    prompts = found.prompts
    seen = {
        "prompts": ", ".join(prompt.name for prompt in prompts),
        "predicted": sum(prompt.predicted for prompt in prompts),
        "drafted": sum(prompt.drafted for prompt in prompts),
        "accepted": sum(prompt.accepted for prompt in prompts),
    }
    decode = metric(
        "decode",
        "tok/s",
        samples=[prompt.decode for prompt in prompts],
        conditions={"mode": found.mode},
        observed=seen,
    )
    return [Found("mtp-bench", [decode], engine={"name": "llama.cpp"}, model=model_of(found.model))]


TOOL = Tool("mtp-bench", parser, _read)
