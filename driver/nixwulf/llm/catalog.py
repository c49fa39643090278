"""Known names: facts of a language model by its own, bits of a weight by its quantization's.

Also a hub of models: what a repository there has, and small answers, each bounded as a whole.
Whoever answers may be a mirror or a stranger: names, sizes, bytes and seconds are all bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urljoin, urlsplit

from nixwulf.core import names, web
from nixwulf.core.errors import InputError, NixwulfError, quoted
from nixwulf.core.files import DATA, parse_json, read_toml
from nixwulf.core.schema import check
from nixwulf.core.text import did_you_mean
from nixwulf.llm.model_facts import ModelFacts, Weights

FILE = DATA / "model" / "models.toml"
NEEDED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary", "parameters_b")
_BILLION = 1e9
_NEAR = 5
_GIB_BITS = 8 * 2**30
_FINER = 2.0
_FINEST = 8.5
_ABOUT = 0.15  # of a size in a name, which is rounded and may count embeddings or not
_SIZE = re.compile(r"a?(\d+(?:\.\d+)?)b")
_WORDS = read_toml(DATA / "model_words.toml")
_ANOTHER = re.compile("|".join(_WORDS["another"]))
_KNOWN_WORD = re.compile("|".join(_WORDS["known"]))
_LEAST = 1.0
_NAMES = [tuple(one.values()) for one in read_toml(DATA / "quantizations.toml")["names"]]
# Files for vLLM: all linear layers have few bits, the output matrix has 16 (what is left out is
# lm_head: https://github.com/vllm-project/llm-compressor/blob/main/examples/awq/README.md).
_OUTPUT_WHOLE = re.compile(r"AWQ|GPTQ|W4A16|INT4|FP8|NVFP4", re.IGNORECASE)
_WHOLE = 16.0
_FORMS = (("nvfp4", r"NVFP4"), ("mxfp4", r"MXFP4"), ("int4", r"AWQ(?!.?8)|GPTQ|W4A16|INT4"))
_MXFP4 = (4.0, 4.6)  # bits of experts that stay as published in whatever file they are


@cache
def table(path: Path = FILE) -> tuple[Mapping[str, Any], ...]:
    """The models of a table; raises InputError, naming the key and what was expected."""
    document = read_toml(path)
    if path != FILE:  # a test holds that of the package against the schema
        check(document, "models", str(path))
    return tuple(document["models"])


def only(path: Path) -> ModelFacts:
    """The model of a file that has one; raises InputError."""
    models = table(path)
    if len(models) != 1:
        raise InputError(
            f"{path}: has {len(models)} [[models]], expected one; give a file with one."
        )
    facts = parse(models[0])
    if facts.routed + facts.unread > facts.parameters:
        raise InputError(
            f"{path}: of {facts.parameters / _BILLION:.3g} billion parameters the experts of "
            f"{facts.name!r} have {facts.routed / _BILLION:.3g} billion and the embedding, with "
            f"unread_b, {facts.unread / _BILLION:.3g}; look at parameters_b and the widths."
        )
    if facts.linear_layers + facts.window_layers > facts.layers:
        raise InputError(
            f"{path}: linear_layers and window_layers are more than {facts.layers} layers."
        )
    return facts


def is_known(name: str) -> bool:
    """Tell whether the table has the model of a name."""
    try:
        return bool(find(name))
    except InputError:
        return False


def find(name: str, path: Path = FILE) -> ModelFacts:
    """The model that a name is about, as first published: 'MiniMax-M2-UD-Q6_K_XL' is MiniMax-M2.

    The longest alias in the name counts, and no letter or digit may follow it: GLM-4.6V is another
    model than GLM-4.6. What is left of the name and is not known is named in the assumptions.

    Raises InputError: a name that is not known, with the facts that are needed and where they go,
    or that has a word or a size of another model, as MiniMax-M2-REAP has.
    """
    found = [
        (len(alias), model, seen)
        for model in table(path)
        for alias in (*model.get("aliases", ()), re.sub(r"[^a-z0-9]", "", model["name"].lower()))
        if (seen := re.search(r"[^a-z0-9]*".join(alias) + r"(?![a-z0-9])", name.lower()))
    ]
    if not found:
        known = [str(model["name"]) for model in table(path)]
        raise InputError(
            f"Model {name!r} is not known; {did_you_mean(name, known, _NEAR)} Of another, give a "
            "GGUF file, or its facts in a TOML file as [[models]] with name, "
            f"{', '.join(NEEDED)}, and for experts: experts, experts_used, expert_width, "
            "moe_layers (all in its config.json)."
        )
    _, model, seen = max(found, key=lambda one: one[0])
    facts = parse(model)
    # Folders and makers stand before the last slash.
    before, after = name[: seen.start()].lower(), name[seen.end() :].lower()
    left = f"{before.rpartition('/')[2]} {after.removesuffix('.gguf')}"
    unknown = [word for word in re.findall(r"[a-z0-9.]+", left) if not _KNOWN_WORD.fullmatch(word)]
    sizes = (facts.parameters / _BILLION, facts.active / _BILLION, model.get("active_b", 0.0))
    for word in unknown:
        size = _SIZE.fullmatch(word)
        fits = size and any(abs(float(size[1]) - one) <= _ABOUT * one for one in sizes)
        if _ANOTHER.fullmatch(word) or (size and not fits):
            raise InputError(
                f"{name!r} is another model than {facts.name}: {word!r} in its name; give its "
                "GGUF or folder, its name on the hub (ORG/REPO), or a TOML file of its facts."
            )
    unknown = [word for word in unknown if not _SIZE.fullmatch(word)]
    if not unknown:
        return facts
    words = ", ".join(map(repr, dict.fromkeys(unknown)))
    assumption = f"taken for {facts.name}; what {words} in {name!r} stands for is not known"
    return replace(facts, assumptions=(assumption,))


def parse(model: Mapping[str, Any]) -> ModelFacts:
    """The facts of an entry of a table."""
    layers, hidden, vocabulary = model["layers"], model["hidden"], model["vocabulary"]
    linear, looking = model.get("linear_layers", 0), model.get("window_layers", 0)
    width = model.get("latent_width") or 2 * model["kv_heads"] * model["head_dim"]
    growing = layers - linear - looking
    limit = model.get("cache_limit", 0)
    embedding = 0 if model.get("tied") else vocabulary * hidden
    matrices = 3.0 if model.get("gated", True) else 2.0
    return ModelFacts(
        name=model["name"],
        layers=layers,
        hidden=hidden,
        parameters=model["parameters_b"] * _BILLION,
        weights=Weights(model.get("routed_bits", 16.0), model.get("other_bits", 16.0)),
        nvfp4_bits=model.get("nvfp4_bits", 16.0),
        vocabulary=vocabulary,
        unread=embedding + model.get("unread_b", 0.0) * _BILLION,
        experts=model.get("experts", 0),
        experts_used=model.get("experts_used", 0),
        routed=matrices
        * model.get("moe_layers", 0)
        * model.get("experts", 0)
        * model.get("expert_input", hidden)
        * model.get("expert_width", 0),
        heads=model["heads"],
        head_dim=model.get("latent_width", model["head_dim"]),
        kv_heads=model["kv_heads"],
        # Sparse attention picks a limited number of tokens: it costs what a window of them does.
        cache_width=0.0 if limit else float(width * growing),
        window_width=float(
            model.get("window_width", width) * looking + (width * growing if limit else 0)
        ),
        window=limit or model.get("window", 0),
        window_layers=looking + (growing if limit else 0),
        linear_layers=linear,
        state_width=float(model.get("state_width", 0) * linear),
        streams=model.get("streams", 1),
    )


def weights_of(name: str, model: ModelFacts, size_gib: float = 0.0) -> Weights:
    """Weights of a model by the name of its quantization.

    A size gives the mean. In a file of mixed blocks the tensors that are no experts have about two
    bits more than the mean, up to Q8_0 (llama_tensor_get_type of llama.cpp; Unsloth's mixes more
    so).

    name: such as 'Q4_K_M'; size_gib: of all of its files, 0 where it is not known. Raises
    InputError for a name that is not known, without a size.
    """
    found = next(((r, o) for p, r, o in _NAMES if re.search(p, name, re.IGNORECASE)), None)
    form = next((form for form, pattern in _FORMS if re.search(pattern, name, re.IGNORECASE)), "")
    native = model.weights.routed_bits
    whole = found is not None and _OUTPUT_WHOLE.search(name) is not None
    if size_gib > 0:
        experts = min(found[0], native) if whole and found else None
        return _by_size(model, size_gib * _GIB_BITS / model.parameters, form, experts)
    if found is None:
        raise InputError(
            f"Quantization {name!r} is not known and there is no size of the files; give one such "
            "as 'Q4_K_M' or 'FP8', or the size of the model's files in GiB."
        )
    routed, other = found
    routed = min(routed, native)
    if form == "nvfp4":
        other = model.nvfp4_bits
    if not model.routed:
        # What is left finer in a mixture (output, attention) is a small part of a dense model.
        other = routed
    stated = form == "nvfp4" and model.routed  # nvfp4_bits have the output in them
    if whole and not stated and other < _WHOLE and native == _WHOLE:
        output = min(1.0, model.vocabulary * model.hidden / max(model.always, 1.0))
        other += (_WHOLE - other) * output
    assumption = f"{routed:g} bits a weight, the usual of {name!r}"
    return Weights(routed, other, (assumption,), form or _native_form(native, routed))


def _by_size(model: ModelFacts, mean: float, form: str, experts: float | None) -> Weights:
    """Weights of a mean of bits; experts: bits of a format's experts, all else has the rest."""
    if not model.routed or mean >= _FINEST:
        return Weights(mean, mean, form=form)
    rest = model.parameters - model.routed
    other = min(_FINEST, mean + _FINER)
    if experts is not None:
        other = (mean * model.parameters - experts * model.routed) / rest
        other = min(_WHOLE, max(experts, other))
    routed = max(_LEAST, (mean * model.parameters - other * rest) / model.routed)
    return Weights(routed, other, form=form or _native_form(model.weights.routed_bits, routed))


def _native_form(native: float, routed: float) -> str:
    """Name the form of experts that were published in MXFP4 and are left so."""
    least, most = _MXFP4
    return "mxfp4" if native < most and least <= routed <= most else ""


_HUB = "https://huggingface.co"
ON_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
"""A model by its name on Hugging Face."""
_REPOSITORY = re.compile(r"([\w.-]{1,96}/)?[\w.-]{1,96}", re.ASCII)
_PATIENCE_S, _MOST_HOPS = 60.0, 10
_MOST_LISTING, _MOST_FILES = 1 << 22, 10_000
_MOST_BYTES = 1 << 50
_SHA256 = re.compile("[0-9a-f]{64}")


class Cut(NixwulfError):
    """A download that ended early; the message lacks what to do next."""


class HubRefused(NixwulfError):
    """A server refused; its status, and a hub's word for why."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"{url!r} is refused with {status}.")
        self.status, self.code = status, headers.get("X-Error-Code", "")


@dataclass(frozen=True)
class File:
    """A file of a repository; sha256 is None of small ones, which the hub keeps in git."""

    name: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class Repository:
    """A repository at a commit."""

    name: str
    commit: str
    files: tuple[File, ...]

    def url(self, file: str) -> str:
        """The address of one of its files."""
        return f"{endpoint()}/{self.name}/resolve/{quote(self.commit, safe='')}/{quote(file)}"


def endpoint() -> str:
    """The hub that is asked: HF_ENDPOINT, or Hugging Face's own; raises InputError."""
    named = os.environ.get("HF_ENDPOINT", _HUB)
    if not web.address(named):
        raise InputError(f"HF_ENDPOINT is {named!r}, no address such as {_HUB!r}.")
    return named.rstrip("/")


def headers() -> dict[str, str]:
    """Return the headers that name the user to the hub; empty without a token."""
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def read(url: str, most: int, headers: Mapping[str, str] | None = None, first: int = 0) -> bytes:
    """Read an address, or so many bytes of it, within a minute.

    Files lie elsewhere than their addresses, so that redirections are followed; other hosts get no
    Authorization.

    Raises:
        HubRefused: by the server.
        Cut: nothing whole came, or more than MOST bytes.
    """
    at, asked = url, {**(headers or {}), "User-Agent": "nixwulf"}
    asked |= {"Range": f"bytes=0-{first - 1}"} if first else {}
    for _ in range(_MOST_HOPS):
        try:
            client = web.client(at, headers=asked, proxies=True)
            reply = web.fetch(client, "GET", at, _PATIENCE_S, most)
            onward = urljoin(at, reply.headers.get("location", at))
        except (web.NoAnswer, ValueError) as error:
            raise Cut(f"{url!r} broke off ({error})") from None
        if reply.ok:
            return reply.body[: first or None]
        if onward == at:
            raise HubRefused(url, reply.status, reply.headers)
        if not web.address(onward):
            break
        if urlsplit(onward)[:2] != urlsplit(at)[:2]:
            asked.pop("Authorization", None)
        at = onward
    raise Cut(f"{url!r} redirects without end, or to no address")


def look(
    repository: str, revision: str | None = None, headers: Mapping[str, str] | None = None
) -> Repository:
    """List a repository at a revision; raises InputError where there is none to be had."""
    from huggingface_hub import constants

    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"{repository!r} is neither a path, a URL nor ORG/REPO of a hub.")
    if constants.HF_HUB_OFFLINE:
        raise NixwulfError(f"HF_HUB_OFFLINE is set: unset it to get {repository!r}.")
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{endpoint()}/api/models/{repository}{at}?blobs=true"
    try:
        text = read(url, _MOST_LISTING, headers).decode("utf-8", "replace")
    except HubRefused as error:
        refuse(error, repository, revision)
    return _repository(repository, parse_json(text, url))


def _repository(name: str, document: object) -> Repository:
    """The listing of a hub, none of whose names leads anywhere else; raises InputError."""
    try:
        commit, found = document["sha"], document["siblings"]  # type: ignore[index]
        files = tuple(
            File(one["rfilename"], one["size"], (one.get("lfs") or {}).get("sha256"))
            for one in found[: _MOST_FILES + 1]
        )
        right = len(files) <= _MOST_FILES and bool(re.fullmatch("[0-9A-Za-z]{1,64}", commit))
        own = {one.name for one in files}
        right &= len(own) == len(files) and not any(
            name[: end.start()] in own for name in own for end in re.finditer("/", name)
        )
        for one in files:
            right &= type(one.bytes) is int and 0 <= one.bytes < _MOST_BYTES
            right &= not one.sha256 or bool(_SHA256.fullmatch(one.sha256))
    except (LookupError, TypeError, AttributeError):
        right = False
    if not right:
        raise InputError(
            f"{endpoint()} lists no repository {name!r} of at most {_MOST_FILES} files, each once "
            "with its size; look at HF_ENDPOINT, or get the model from a URL."
        )
    for one in files:
        if fault := names.fault(one.name):
            raise InputError(
                f"{endpoint()} lists a file {quoted(one.name)} in {name!r}, and {fault}: nothing "
                "was fetched; look at HF_ENDPOINT, or get the model from another place."
            )
    return Repository(name, commit, files)


def refuse(error: HubRefused, repository: str, revision: str | None) -> NoReturn:
    """Raise what a hub's refusal means, which it says by a word in a header."""
    hub = endpoint()
    if error.code == "GatedRepo":
        raise InputError(
            f"{repository!r} is gated: ask for access at {hub}/{repository}, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    if error.code == "RevisionNotFound":
        raise InputError(f"{repository!r} has no revision {revision!r} at {hub}.") from None
    if error.code == "RepoNotFound" or error.status == web.UNAUTHORIZED:
        raise InputError(
            f"{hub} has no {repository!r}, or it is private: look at the name, and log in by 'hf "
            "auth login' or set HF_TOKEN."
        ) from None
    raise Cut(f"{hub} refuses {repository!r} with {error.status}") from None
