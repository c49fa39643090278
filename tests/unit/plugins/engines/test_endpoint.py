"""What somebody else's server is asked, how it is recognised, and what each odd answer means."""

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

from answering_server import Prepared, answering
from broken_endpoint import DONE, END, FINISH, HEAD, event, serving, usage
from nixwulf.core import web
from nixwulf.core.errors import InputError, NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins.benchmarks import quality
from nixwulf.plugins.engines import find
from nixwulf.plugins.engines.endpoint import Url, answers, server, url_problem
from nixwulf.plugins.engines.endpoint.answers import TextAnswers
from nixwulf.plugins.runtime.openai import Completions, Position
from nixwulf.plugins.runtime.openai_stream import StreamError
from nixwulf.plugins.runtime.request_load import Load, LoadTarget
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep.plan import make_plan, parse_sweep


@pytest.mark.parametrize(
    ("text", "base", "target"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434", "127.0.0.1:11434"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434", "127.0.0.1:11434"),
        ("http://box:8000/v1", "http://box:8000", "box:8000"),
        ("http://box:8000/v1/", "http://box:8000", "box:8000"),
        ("http://box/v1/chat/completions", "http://box", "box:80"),
        ("http://box/v1/models", "http://box", "box:80"),
        ("http://box:8000/api/v1", "http://box:8000/api", "box:8000"),
        ("https://api.example.org/openai", "https://api.example.org/openai", "api.example.org:443"),
        ("HTTP://Box:8000", "http://box:8000", "box:8000"),
        ("http://[::1]:8080/v1", "http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_an_address_is_taken_before_and_after_its_v1(text, base, target):
    assert url_problem(text) is None
    assert Url.of(text) == Url(base, target)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "file:///etc/passwd",
            "127.0.0.1:8080",
            "box",
            "http://",
            "http://box:99999",
            "ftp://box",
        ),
        *(
            "http://box:0",
            "http://-oProxyCommand=x:1",
            "http://b ox",
            "http://box/a b",
            "http://[::1",
        ),
        *("http://box/?key=x", "http://box/#v1", f"http://box{chr(10)}:1", "http://b%6fx"),
    ],
)
def test_what_is_no_address_is_refused(text):
    assert url_problem(text)


def plan(model=None, parallelism="single", engine="endpoint", **parameters):
    # no output: a sweep
    document = {
        "name": "asked",
        "models": {"m": model or {"served": "llama3.2:3b"}},
        "matrix": {
            "engine": [engine],
            "benchmark": ["serve"],
            "model": ["m"],
            "nodes": [2 if parallelism != "single" else 1],
            "parallelism": [parallelism],
            "parameters": parameters,
        },
    }
    return make_plan(parse_sweep(document, "asked.yaml"), load_cluster("dgx-spark-2"))


at = partial(plan, url=["http://127.0.0.1:11434"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (plan, "give its address as the parameter url: ['http://127.0.0.1:11434']"),
        (partial(at, {"path": "/m"}), "write {served: NAME} for the model"),
        (partial(at, {"random": {}}), "write {served: NAME} for the model"),
        (partial(at, arguments=["--poll 0"]), "starts nothing that could take arguments"),
        (partial(at, environment=[{"FOO": 1}]), "the variable FOO; the only one it knows is"),
        (partial(at, parallelism="replicas"), "it has no replicas or servers"),
        (partial(plan, engine="llama.cpp"), "'served' names one that a server has"),
        (partial(plan, url=["file:///x"]), "expected http://HOST:PORT or https://HOST:PORT"),
    ],
)
def test_a_sweep_that_an_endpoint_cannot_be_asked_for_is_refused_with_what_to_write(make, words):
    with pytest.raises(InputError) as error:
        make()
    assert words in error.value.message


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(InputError) as error:
        plan(url=["https://me:hunter22@box/v1"])
    assert "no name or password in it, which every record would have" in error.value.message
    assert "hunter22" not in error.value.message


def test_a_name_on_hugging_face_and_a_served_name_are_models_of_an_endpoint():
    for model in ({"id": "openai/gpt-oss-20b"}, {"served": "gpt oss:20b (mine)"}):
        assert len(at(model).cases) == 1
    assert at().cases[0].model_digest != at({"served": "other"}).cases[0].model_digest
    assert at(environment=[{"OPENAI_API_KEY": None}]).cases


@pytest.mark.parametrize("key", ["two words", f"line{chr(10)}end", "schlüssel", " "])
def test_a_key_that_no_header_can_have_is_refused_and_not_repeated(monkeypatch, key):
    monkeypatch.setenv(server.KEY, key)
    with pytest.raises(NixwulfError) as error:
        server.headers({"environment": server.KEY})
    assert key.strip() not in error.value.message or not key.strip()


def listed(owner, *names):
    # hand-made: what all servers list alike (form: https://platform.openai.com/docs/api-reference)
    models = [{"id": name, "object": "model", "owned_by": owner} for name in names or ("mine",)]
    return Prepared(200, {"object": "list", "data": models})


VERSION = Prepared(200, {"version": "0.12.1"})
# hand-made: only whoever has a GPU has most of them (form: the sources in PROGRAMS)
SERVERS = {
    "llama-server": ("llamacpp", {"/props": Prepared(200, {"build_info": "b6585-0c1e570"})}),
    "vLLM": ("vllm", {"/version": VERSION}),
    "SGLang": ("sglang", {"/get_server_info": VERSION}),
    "TensorRT-LLM": ("tensorrt_llm", {"/version": VERSION}),
    "Lemonade": ("lemonade", {"/v1/health": VERSION, "/api/version": Prepared(200, {})}),
    "LM Studio": ("organization_owner", {}),
    "Ollama": ("library", {"/api/version": VERSION}),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_program_is_known_by_what_it_says_of_itself(tmp_path, name):
    owner, more = SERVERS[name]
    versions = {"llama-server": " b6585-0c1e570", "LM Studio": ", unknown"}
    with answering(tmp_path, {"/v1/models": listed(owner), **more}) as (endpoint, _):
        found = server.identified(endpoint)
    assert found == {"program": name, "version": name + versions.get(name, " 0.12.1")}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"/api/version": Prepared(200, "<html>")},
        {"/api/version": Prepared(200, {"version": 7})},
        {"/api/version": Prepared(200, {"version": "x" * 200})},
        {"/version": VERSION},
    ],
)
def test_a_server_that_does_not_say_what_it_is_is_unknown(tmp_path, more):
    with answering(tmp_path, {"/v1/models": listed("somebody"), **more}) as (endpoint, _):
        assert server.identified(endpoint) == {"program": "unknown", "version": "unknown"}


def test_a_model_that_is_not_listed_is_failed_with_a_few_of_those_that_are(tmp_path):
    names = [f"model-{number}" for number in range(20)]
    with (
        answering(tmp_path, {"/v1/models": listed("x", *names)}) as (endpoint, _),
        pytest.raises(RunFailure) as failure,
    ):
        server.require_model(endpoint)
    assert "does not list the model 'mine'; it has 'model-0', 'model-1'" in failure.value.reason
    assert "'model-7' and 12 more: write one of them" in failure.value.reason


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Prepared(404, "no such page"), "no list of models (404: 'no such page'); url is what"),
        (Prepared(200, "<!doctype html>"), "no list of models (200: '<!doctype html>')"),
        (Prepared(200, {"data": [1]}), "no list of models (200: "),
        (Prepared(500, ""), "no list of models (500: 'nothing')"),
        (Prepared(401, "no"), "answered 401: it wants a key; write environment: ["),
        (Prepared(403, "no"), "answered 403: it wants a key; write environment: ["),
        (
            Prepared(308, "", {"Location": "https://box/v1/models"}),
            "points to 'https://box/v1/models' instead; write that as url.",
        ),
    ],
)
def test_what_is_no_list_of_models_is_a_sentence_with_what_to_do(tmp_path, reply, words):
    with (
        answering(tmp_path, {"/v1/models": reply}) as (endpoint, _),
        pytest.raises(RunFailure) as failure,
    ):
        server.require_model(endpoint)
    assert words in failure.value.reason
    assert "\n" not in failure.value.reason


def test_each_request_has_the_prefix_and_the_key(tmp_path):
    more = {"base_url": "http://box/api", "headers": {"Authorization": "Bearer k"}}
    with answering(tmp_path, {"/api/v1/models": listed("x")}, **more) as (endpoint, seen):
        server.require_model(endpoint)
        assert "Bearer" not in repr(endpoint)
    assert [(path, headers["Authorization"]) for path, _, headers in seen] == [
        ("/api/v1/models", "Bearer k")
    ]
    assert seen[0][2]["Host"] == "box"


def completion(**more):
    # hand-made: the least of a completion (form: https://platform.openai.com/docs/api-reference)
    return Prepared(200, {"model": "mine", "choices": [{"text": " the end", **more}]})


def test_an_answer_by_another_name_is_failed_with_both(tmp_path):
    lie = Prepared(200, {"model": "smaller", "choices": [{"text": "x"}]})
    with (
        answering(tmp_path, {"/v1/completions": lie}) as (endpoint, _),
        pytest.raises(RunFailure) as failure,
    ):
        answers.require_answer(endpoint, endpoint.run)
    assert failure.value.reason == (
        "The endpoint was asked for the model 'mine' and says that 'smaller' answered; ask for "
        "that, or correct the server."
    )


def test_a_stream_by_another_name_is_failed_with_both(tmp_path):
    async def load(name):
        # hand-made: the least of an event (form: tests/fixtures/openai-streams)
        word = event({"model": name, "choices": [{"text": "a"}]})
        pieces = [HEAD, word, word, FINISH, usage(40, 2), DONE, END]
        async with serving(tmp_path, lambda _: pieces) as served, served.async_client() as client:
            loading = Load([LoadTarget(client, "mine", str, "mine")], "completions", 1, 64)
            return await loading.send(None, 1, 1, 2)

    assert [answer.model for answer in asyncio.run(load("mine")).answers] == ["mine"]
    (tmp_path / "s").unlink(missing_ok=True)
    with pytest.raises(StreamError, match="'mine' and says that 'smaller' answered"):
        asyncio.run(load("smaller"))


def test_a_server_that_refuses_probabilities_is_asked_without_them(tmp_path):
    def answer(asked):
        return Prepared(400, "no logprobs") if "logprobs" in asked else completion()

    with answering(tmp_path, {"/v1/completions": answer}) as (endpoint, seen):
        answers.require_answer(endpoint, endpoint.run)
        completer = answers.completer(endpoint, endpoint.run, 512)
        found = completer.complete("The fox", (), 8)
    assert found == (Position(" the", {}), Position(" end", {}))
    assert "logprobs" not in seen[-1][1]
    assert completer.complete("The fox", ["a"], 8) is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_key_for_answers_alone_says_so(tmp_path, status):
    with (
        answering(tmp_path, {"/v1/completions": Prepared(status, "no")}) as (endpoint, _),
        pytest.raises(RunFailure, match=f"answered {status}: it wants a key"),
    ):
        answers.require_answer(endpoint, endpoint.run)


def test_a_server_without_completions_is_failed_with_the_api_to_ask_for(tmp_path):
    with (
        answering(tmp_path, {}) as (endpoint, _),
        pytest.raises(RunFailure, match=r"give the parameter api: \[chat\]\."),
    ):
        answers.require_answer(endpoint, endpoint.run)


def test_a_server_that_never_answers_is_failed_with_how_long_it_was_asked(tmp_path):
    waits = threading.Event()

    def never(_):
        waits.wait(30)
        return Prepared(200, {})

    with answering(tmp_path, {"/v1/models": never}) as (endpoint, _):
        endpoint.run.head.limit = lambda _: 0.2
        with pytest.raises(RunFailure) as failure:
            server.require_model(endpoint)
        waits.set()
    assert "gets no answer from 'http://box:8080' (nothing whole in 0.2 s)" in failure.value.reason


@pytest.mark.parametrize(("given", "rest"), [(TextAnswers, {"wanted": {}}), (Completions, {})])
def test_quality_of_a_server_that_forces_no_token_is_unsupported(monkeypatch, given, rest):
    own = {"post": None, "request": {}, "context": 0, "wanted": {}}
    own = {"endpoint": None, "api": "chat", **rest} if given is TextAnswers else own
    monkeypatch.setattr(find("endpoint"), "completer", lambda *_: nullcontext(given(**own)))
    values = {"n_prompt": 128, "positions": 8}
    run = SimpleNamespace(case=SimpleNamespace(engine="endpoint", parameters=values))
    with pytest.raises(RunFailure, match="no log-probabilities of tokens") as failure:
        quality._server(run).__enter__()
    assert failure.value.outcome == "unsupported"


# hand-made: of a chat's tokens (form: https://platform.openai.com/docs/api-reference/chat)
TOP = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -2.5}]
# hand-made: as above (form: https://platform.openai.com/docs/api-reference/chat)
IN_CHAT = {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": TOP}]}
# hand-made: of a completion's (form: https://platform.openai.com/docs/api-reference/completions)
IN_COMPLETION = {
    "tokens": ["a"],
    "token_logprobs": [-0.1],
    "top_logprobs": [{"a": -0.1, "b": -2.5}],
}


@pytest.mark.parametrize("logprobs", [IN_CHAT, IN_COMPLETION])
def test_tokens_are_known_by_their_texts_with_probabilities(logprobs):
    found = answers.positions({"choices": [{"text": "a", "logprobs": logprobs}]}, 1)
    assert found == (Position("a", {"a": -0.1, "b": -2.5}),)


def test_an_answer_without_probabilities_is_its_words_a_thought_too():
    chat = {"choices": [{"message": {"content": "", "reasoning_content": "so it  is"}}]}
    assert [one.token for one in answers.positions(chat, 9)] == ["so", " it", "  is"]


def test_a_text_has_no_more_tokens_and_no_longer_ones_than_were_asked_for():
    logprobs = {"tokens": ["a" * 10**6] * 100}
    for choice in ({"text": "a " * 10**6}, {"text": "a" * 10**6}, {"logprobs": logprobs}):
        found = answers.positions({"choices": [choice]}, 8)
        assert len(found) <= 8
        assert sum(len(one.token) for one in found) <= 8 * 128


# hand-made: a probability of 400 digits (form: https://platform.openai.com/docs/api-reference)
VAST = {"tokens": ["a"], "top_logprobs": [{"a": -(10**400)}]}
# no output: no answer of any server
NOTHING = [None, [], {}, {"choices": []}, {"choices": [{"text": ""}]}]


@pytest.mark.parametrize("answer", [*NOTHING, {"choices": [{"text": "a", "logprobs": VAST}]}])
def test_an_answer_without_text_is_failed(answer):
    with pytest.raises(RunFailure, match="The endpoint answered no text"):
        answers.positions(answer, 9)


def test_vllm_forces_a_token_as_the_last_of_a_prompt():
    asked = []

    def post(path, request):
        asked.append(request)
        # hand-made: only whoever has vLLM has one (form: the source at Completions._in_prompt)
        last = {
            "7": {"logprob": -3.5, "rank": 9, "decoded_token": "x"},
            "5": {"logprob": -0.5, "rank": 1, "decoded_token": "y"},
        }
        return {"choices": [{"text": "", "prompt_logprobs": [None, last]}]}

    completions = Completions(post, {"model": "m", "seed": 1}, 512, {}, forced_in_prompt=True)
    assert completions.forced([3], 7) == Position(7, {7: -3.5, 5: -0.5})
    assert asked[0]["prompt"] == [3, 7]
    with pytest.raises(RunFailure, match="gave no tokens"):
        completions.forced([3], 8)


def certified(folder, host):
    """A certificate of a host by nobody else, and a server's context with it."""
    files = [str(folder / "key.pem"), str(folder / "cert.pem")]
    subject = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    command += ["-keyout", files[0], "-out", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    return context, files[1]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_the_certificate_of_https_is_held_against_the_addresss_host(tmp_path, monkeypatch):
    context, certificate = certified(tmp_path, "box.test")
    made = partial(answering, tmp_path, {"/v1/models": listed("x")}, context)
    with made(base_url="https://box.test") as (endpoint, _):
        with pytest.raises(RunFailure, match="certificate verify failed"):
            server.require_model(endpoint)
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        web.tls.cache_clear()
        server.require_model(endpoint)
    (tmp_path / "s").unlink()
    with (
        made(base_url="https://other.test") as (endpoint, _),
        pytest.raises(RunFailure, match="Hostname mismatch"),
    ):
        server.require_model(endpoint)


def test_an_endpoint_is_no_engine_of_this_machine():
    engine = find("endpoint")
    assert engine.find_local() is None
    assert engine.install_local(lambda step, share: None).programs == {}
    assert engine.version_command(dict(os.environ)) == []
