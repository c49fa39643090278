"""How many drafted tokens a pass accepted, by what each kind of server counts."""

import asyncio
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import httpx
import pytest

from nixwulf.core.errors import InputError
from nixwulf.core.metric import Metric, accepted
from nixwulf.inventory.cluster import load_cluster
from nixwulf.llm import PlacedModel, parse_model
from nixwulf.plugins.engines import all_engines, find
from nixwulf.plugins.runtime import passthrough, speculation
from nixwulf.plugins.runtime.openai import Position, compare
from nixwulf.plugins.runtime.openai_stream import Answer, StreamError
from nixwulf.plugins.runtime.request_load import Drafted, LoadTarget, Pass
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep import phases
from nixwulf.sweep.plan import make_plan, parse_sweep
from nixwulf.sweep.recording import Findings
from nixwulf.sweep.references import LEAST_LIMIT

# hand-made: counters before and after a pass (form: /metrics of vLLM 0.33 and of llama-server)
VLLM_BEFORE = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0
"""
VLLM_AFTER = VLLM_BEFORE.replace("30.0", "1.03e3").replace(" 6.0", " 506.0")
# hand-made: a counter of steps (form: /metrics of SGLang 0.5.23)
SGLANG = 'sglang:spec_verify_calls_total{model_name="m"} %d.0\nsglang:spec_accept_rate{a="b"} 0.5\n'


def answer(tokens=9, **timings):
    return Answer(0.0, tuple(range(1, tokens + 1)), 16, tokens, 0, "length", timings)


def a_pass(*answers):
    return Pass(answers, 0.1)


def counted(draft, sending, *texts, foreign=False):
    """What was drafted in a pass of a server whose /metrics gives these texts in turn."""
    left = list(texts)

    def respond(request):
        # Not read before, as none of a socket is.
        body = httpx.ByteStream(left.pop(0).encode()) if left else None
        return httpx.Response(200 if body else 404, stream=body or httpx.ByteStream(b""))

    async def ask():
        async def done():
            return sending

        transport = httpx.MockTransport(respond)
        async with httpx.AsyncClient(transport=transport, base_url="http://head") as client:
            server = LoadTarget(client, "m", lambda: None, foreign=foreign)
            return await speculation.counted({"draft": draft}, [server], done(), lambda one: one)

    return asyncio.run(ask())[1]


def test_llama_servers_figures_of_each_answer_are_added():
    one = a_pass(
        answer(predicted_n=9, draft_n=6, draft_n_accepted=3),
        answer(predicted_n=9),
        answer(predicted_n=9, draft_n=4, draft_n_accepted=2),
    )
    assert counted("ngram", one) == Drafted(10, 5)


def test_of_counters_what_they_grew_by_in_the_pass_counts():
    assert counted("ngram", a_pass(answer()), VLLM_BEFORE, VLLM_AFTER) == Drafted(1000, 500)


def test_a_server_that_the_run_did_not_start_is_asked_without_a_draft_of_the_case():
    texts = (VLLM_BEFORE, VLLM_AFTER)
    assert counted("none", a_pass(answer()), *texts, foreign=True) == Drafted(1000, 500)
    assert counted("none", a_pass(answer()), *texts) is None
    told = a_pass(answer(predicted_n=9, draft_n=4, draft_n_accepted=2))
    assert counted("none", told) == Drafted(4, 2)
    assert speculation.drafts({}, [replace(told, drafted=Drafted(4, 2))])
    assert not speculation.drafts({}, [replace(told, drafted=Drafted(0, 0))])


def test_of_steps_and_tokens_follows_what_was_accepted():
    one = a_pass(answer(9), answer(9))
    # Sixteen tokens after the first ones in six steps: ten were accepted of three a step.
    assert counted("/m", one, SGLANG % 4, SGLANG % 10) == Drafted(18, 10)


@pytest.mark.parametrize("value", ["3.0", "1e999", "1e300"])
@pytest.mark.parametrize("before", ["30.0", " 6.0"])
def test_counters_that_no_server_can_have_fail(value, before):
    # Fewer than before, more than any, or more accepted than drafted.
    after = VLLM_BEFORE.replace(before, value if before != " 6.0" else f" {value}")
    with pytest.raises(StreamError, match="The server does not count"):
        counted("ngram", a_pass(answer()), VLLM_BEFORE, after)


def test_more_accepted_than_is_known_to_be_drafted_is_no_count():
    assert counted("/m", a_pass(answer(100)), SGLANG % 4, SGLANG % 10) is None


def test_a_server_that_counts_nothing_gives_nothing():
    assert counted("ngram", a_pass(answer())) is None
    assert counted("none", a_pass(answer()), VLLM_BEFORE, VLLM_AFTER) is None


def metrics(draft, *passes):
    run = SimpleNamespace(case=SimpleNamespace(parameters={"draft": draft}), warnings=[])
    found = [Metric(name, "tok/s", (8.0,), "warm") for name in ("ttft", "decode", "throughput")]
    marked = speculation.with_acceptance(found, passes, run)
    return {metric.name: metric for metric in marked}, run.warnings


def drafted(*counts):
    return [Pass((answer(9), answer(9)), 0.1, drafted=Drafted(*each)) for each in counts]


def test_acceptance_is_by_pass_and_stands_with_each_speed_after_decode():
    found, warnings = metrics("small", *drafted((20, 8), (20, 12)))
    assert list(found) == ["ttft", "decode", "acceptance", "tokens_per_step", "throughput"]
    assert found["acceptance"].samples == (40, 60)
    assert found["tokens_per_step"].samples == (2, 4)
    observed = [found[name].observed.get("acceptance") for name in ("ttft", "decode", "throughput")]
    assert observed == [None, "50.0 %", "50.0 %"]
    assert warnings == []


def test_without_counts_decode_is_marked_and_the_run_warned():
    found, (warning,) = metrics("small", a_pass(answer()))
    assert found["decode"].observed == {"acceptance": "acceptance not counted"}
    assert "acceptance" not in found
    assert "does not count drafted tokens" in warning


def test_a_model_that_drafted_nothing_is_fallback_and_ngrams_are_only_marked():
    with pytest.raises(RunFailure, match="The draft 'small' drafted no token") as failure:
        metrics("small", *drafted((0, 0)))
    assert failure.value.outcome == "fallback"
    found, (warning,) = metrics("ngram", *drafted((0, 0)))
    assert found["decode"].observed == {"acceptance": "nothing drafted"}
    assert found["tokens_per_step"].samples == (1,)
    assert "decode is that without a draft" in warning


def test_a_speed_is_shown_with_its_acceptance():
    assert accepted("71.2 %") == " (71.2 % accepted)"
    assert accepted("acceptance not counted") == " (acceptance not counted)"
    assert accepted("") == ""


# no output: parameters of cases
@pytest.mark.parametrize(
    ("engine", "given", "reason"),
    [
        ("llama.cpp", {"draft": "ngram", "draft_tokens": 4}, None),
        ("mlx", {"draft": "ngram"}, "mlx drafts by a model only"),
        ("exo", {"draft": "ngram"}, "exo is not driven with a draft"),
        (
            "vllm",
            {"draft_tokens": 4},
            "draft_tokens 4 are of no draft; give one, or draft_tokens 0",
        ),
    ],
)
def test_what_an_engine_cannot_draft_is_refused(engine, given, reason):
    assert speculation.problem(engine, find(engine).drafts, given) == reason


def plan(cluster="framework-2", benchmark="serve", engine="llama.cpp", **parameters):
    models = {"m": {"path": "/models/m.gguf"}, "small": {"path": "/models/s.gguf"}}
    matrix = {
        "engine": [engine],
        "benchmark": [benchmark],
        "model": ["m"],
        "nodes": [1],
        "parallelism": ["single"],
        "parameters": parameters,
    }
    document = {"name": "drafts", "models": models, "matrix": matrix}
    return make_plan(parse_sweep(document, "drafts.yaml"), load_cluster(cluster))


def test_a_case_without_a_draft_is_the_case_of_before_and_a_drafts_definition_tells_cases_apart():
    before, *others = plan(draft=["none", "small", "/models/s.gguf", "ngram"]).cases
    assert "draft" not in before.parameters
    assert before.id == plan().cases[0].id
    assert len({case.model_digest for case in (before, *others)}) == 2
    assert all(case.model_digest.startswith(before.model_digest) for case in others)


def test_a_draft_that_is_no_model_is_refused_before_anything_runs():
    with pytest.raises(InputError, match="the draft 'big' is none of none, ngram, mtp and not"):
        plan(draft=["none", "big"])


def test_a_benchmark_that_shows_no_acceptance_leaves_drafts_out():
    found = plan(benchmark="llama-bench", draft=["none", "small"])
    (left,) = found.left_out
    words = "llama-bench shows no acceptance of drafts; the benchmark of drafts is serve"
    assert left.reason == words
    assert len(found.cases) == 1


@pytest.mark.parametrize("name", sorted(all_engines()))
def test_the_flags_of_drafts_are_refused_where_the_driver_sets_them(name):
    engine = find(name)
    # no output: flags of the engines
    flags = {
        "llama.cpp": "-md --model-draft --spec-type --draft-max -devd -ngld --spec-synth-rates",
        "mlx": "--draft-model --num-draft-tokens",
        "sglang": "--speculative-algorithm --speculative-num-steps",
    }
    for flag in flags.get(name, "").split():
        refused = passthrough.problem(
            {"arguments": f"{flag} 3"}, engine.reserved_arguments, engine.reserved_variables
        )
        assert f"the driver sets {flag} itself" in refused
    assert bool(flags.get(name)) == (bool(engine.drafts) and name != "vllm"), "it takes its own"


class Accepting:
    """A completer whose server gives probabilities of the first token of an answer alone."""

    context = 64

    def __init__(self, tokens):
        self.tokens = tokens

    def prompt(self, tokens):
        return list(range(tokens))

    def complete(self, prompt, given, count):
        found = self.tokens[len(given) : len(given) + count]
        return tuple(Position(t, {} if n else {t: 0.0}) for n, t in enumerate(found))


def reference(*pairs):
    """Tokens with the probability of each; what remains is that of token 9."""
    return tuple(Position(t, {t: math.log(p), 9: math.log(1 - p)}) for t, p in pairs)


def test_drafted_tokens_without_probabilities_are_judged_by_those_of_the_reference():
    expected = reference((1, 0.9999), (2, 0.9), (3, 0.9), (4, 0.9))
    same = compare(Accepting([1, 2, 3, 4]), [0], expected)
    assert same.first_difference is None
    assert same.mean < 1e-3
    # The least that a text can be apart which takes a token of 0.1 instead of one of 0.9.
    wrong = compare(Accepting([1, 2, 9, 4]), [0], expected)
    least = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert wrong.first_difference == 2
    assert wrong.divergences[2] == pytest.approx(least)
    assert wrong.mean > 0.05
    near = reference((1, 0.9999), (2, 0.501), (3, 0.9), (4, 0.9))
    tied = compare(Accepting([1, 9, 3, 4]), [0], near)
    assert tied.first_difference == 1
    assert tied.mean < LEAST_LIMIT


def test_a_draft_that_is_given_twice_is_refused():
    given = {"draft": "ngram", "arguments": "--speculative-config.method eagle3"}
    assert "twice" in speculation.problem("vllm", find("vllm").drafts, given)


def sweep_with(draft, engine="vllm", benchmark="serve", **parameters):
    document = {
        "name": "drafts",
        "models": {"m": {"path": "/m/a"}, "head": {"path": "/m/head"}},
        "matrix": {
            "engine": [engine],
            "benchmark": [benchmark],
            "model": ["m"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {"draft": draft, **parameters},
        },
    }
    return parse_sweep(document, "drafts.yaml")


def test_a_draft_in_an_engines_own_words_is_a_case_with_all_of_them():
    given = {"method": "dflash", "model": "head", "tokens": 15, "draft_tensor_parallel_size": 1}
    plan = make_plan(sweep_with([given, "ngram", {"method": "suffix"}]), load_cluster("lab"))
    drafts = [speculation.of(case.parameters) for case in plan.cases]
    assert [one.kind for one in drafts] == ["model", "ngram", "method"]
    assert (drafts[0].method, drafts[0].model, drafts[0].tokens) == ("dflash", "head", 15)
    assert drafts[0].more == {"draft_tensor_parallel_size": 1}
    assert [case.model_digest.count(" ") for case in plan.cases] == [1, 0, 0], "the head's too"
    assert len({case.id for case in plan.cases}) == 3


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ({"tokens": 3}, "no method and no model"),
        ({"method": 3}, "both texts"),
        ({"method": "suffix", "tokens": 0}, "expected int of at least 1"),
        ({"method": "suffix", "tokens": True}, "expected int of at least 1"),
        ({"model": "nobody"}, "the draft 'nobody' is none of"),
    ],
)
def test_a_draft_that_says_nothing_is_refused_with_what_to_write(draft, words):
    with pytest.raises(InputError, match=words):
        sweep_with([draft])


def test_an_engine_without_methods_of_its_own_takes_a_model_alone():
    # no output: a case's parameter
    given = {"draft": '{"method": "eagle3", "model": "/d"}'}
    assert speculation.problem("mlx", find("mlx").drafts, given) == "mlx drafts by a model only"
    assert speculation.problem("vllm", find("vllm").drafts, given) is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (
            """--speculative-config '{"method": "dspark", "num_speculative_tokens": 7, "k": 1}'""",
            ("method", "dspark", 7, {"k": 1}),
        ),
        ('-sc=\'{"method":"ngram"}\'', ("ngram", "", 0, {})),
        ("--speculative-config.method eagle3", ("method", "", 0, {})),
        ("--speculative-config", ("method", "", 0, {})),
        ("--no-enable-prefix-caching", ("none", "", 0, {})),
    ],
)
def test_a_draft_by_hand_is_allowed_and_read(arguments, found):
    draft = speculation.of({"arguments": arguments})
    assert (draft.kind, draft.method, draft.tokens, draft.more) == found
    assert draft.by_hand == (draft.kind != "none")
    vllm = find("vllm")
    given = {"arguments": arguments}
    assert passthrough.problem(given, vllm.reserved_arguments, vllm.reserved_variables) is None


def test_the_text_without_a_draft_by_hand_has_every_other_argument():
    words = "--a 1 --speculative-config.method x --speculative-config.n 3 --b"
    case = make_plan(sweep_with(["none"], arguments=[words]), load_cluster("lab")).cases[0]
    run = speculation.without(SimpleRun(case))
    assert run.case.parameters["arguments"] == "--a 1 --b"


@dataclass(frozen=True)
class SimpleRun:
    """What `without` takes of a run."""

    case: object
    draft: str = ""


def test_a_draft_that_leads_to_a_file_or_a_module_is_shown_before_it_runs():
    # no output: a case's parameter
    given = {"draft": '{"method": "custom_class", "model": "/d", "plugin": "a.b"}'}
    assert passthrough.active(given)
    # no output: a case's parameter
    assert not passthrough.active({"draft": '{"method": "eagle3", "model": "/d", "k": 2}'})


def test_the_bytes_of_a_draft_are_in_the_record_and_in_the_memory_that_it_needs():
    case = make_plan(sweep_with(["/d/head"]), load_cluster("lab")).cases[0]
    run = SimpleNamespace(case=case, engine_facts={}, bring_model=lambda name: placed[name])
    placed = {
        name: PlacedModel(parse_model(name, {"path": name}, "s"), name, 5 * 2**30, sha256="ab" * 32)
        for name in ("/m/a", "/d/head")
    }
    phases._bring(run, Findings(), lambda: placed["/m/a"], find("vllm"))
    assert (run.draft, run.draft_bytes) == ("/d/head", 5 * 2**30)
    assert run.engine_facts == {"draft": "head", "draft_sha256": "ab" * 32}
