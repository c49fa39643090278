"""Speculative decoding by a real llama-server in the lab, its counts held against its own log."""

import re
from functools import partial

import pytest
from lab_under_test import Silent, recorded_each

from nixwulf.core.errors import InputError
from nixwulf.plugins.engines.llama_cpp import options
from nixwulf.sweep import session
from nixwulf.sweep.plan import make_plan, parse_sweep

LEFT = "grep -ls -e rpc-server -e llama- /proc/[0-9]*/comm || true"
LOGGED = re.compile(r"draft acceptance = \S+ \( *(\d+) accepted / *(\d+) generated\)")
MADE_UP = {"LLAMA_ARG_SPEC_SYNTH_LEN": 3}
REQUESTS = 3
SAMPLES = 2
# Of four layers an answer with drafts took half a millisecond, whose speed no honest server has.
MODELS = {
    "tiny": {"random": {"layers": 12}},
    "shallow": {"random": {"layers": 11}},
    "other": {"random": {"layers": 1, "seed": 7}},
    "foreign": {"random": {"layers": 1, "vocabulary": 2048}},
}


def plan_for(cluster, drafts, nodes=1, **parameters):
    matrix = {
        "benchmark": ["serve"],
        "model": ["tiny"],
        "nodes": [nodes],
        "parallelism": ["single" if nodes == 1 else "pipeline"],
        "parameters": {
            "draft": drafts,
            "threads": [1],
            "requests": [REQUESTS],
            "n_prompt": [48],
            "n_gen": [32],
            **parameters,
        },
    }
    if nodes > 1:
        matrix["fabric"] = ["rdma-like"]
    document = {"name": "speculation", "models": MODELS, "matrix": matrix, "sanity": "short"}
    return make_plan(parse_sweep({**document, "samples": SAMPLES}, "speculation.yaml"), cluster)


@pytest.fixture(scope="module")
def nodes(cluster):
    with session.session(plan_for(cluster, ["none"], 2), Silent()) as connected:
        yield connected


@pytest.fixture
def run(nodes, tmp_path):
    return partial(recorded_each, nodes, tmp_path, LEFT)


def metric(record, name):
    return next(one for one in record["metrics"] if one["name"] == name)


def logged(folder, record):
    """Accepted and drafted tokens of the answers that were measured, by the server's log."""
    servers = sorted(folder.glob(f"raw/{record['id']}/llama-server-*.stderr"))
    lines = [line for path in servers for line in LOGGED.findall(path.read_text())]
    accepted, drafted = zip(*lines[-SAMPLES * REQUESTS :], strict=True)
    return sum(map(int, accepted)), sum(map(int, drafted))


def test_acceptance_is_that_of_the_servers_own_log_and_of_the_same_model_all(
    run, cluster, tmp_path
):
    found = {}
    for case, record in run(plan_for(cluster, ["tiny", "shallow", "other"])):
        assert record["outcome"] == "ok", record["failure"]
        draft = case.parameters["draft"]
        accepted, drafted = logged(tmp_path, record)
        found[draft] = metric(record, "acceptance")["value"]
        assert found[draft] == pytest.approx(100 * accepted / drafted, abs=1)
        assert metric(record, "acceptance")["observed"] == {
            "drafted": drafted,
            "accepted": accepted,
        }
        # Each answer has 31 tokens after its first.
        steps = 31 * SAMPLES * REQUESTS - accepted
        length = metric(record, "tokens_per_step")["value"]
        assert length == pytest.approx(31 * SAMPLES * REQUESTS / steps, rel=0.01)
        assert metric(record, "decode")["observed"]["acceptance"].endswith(" %")
        assert not [one for one in record["metrics"] if one["name"] == "itl"]
        text = record["sanity"]["text"]
        assert text["agrees"]
        assert text["reference"] == "one node, without a draft"
        argv = record["commands"][-1]["argv"]
        assert argv[argv.index("-devd") + 1] == "none"
        assert record["engine"]["draft"].endswith(".gguf")
    assert found["tiny"] == 100
    assert found["other"] < 5 < found["shallow"] < 100


def test_a_draft_runs_on_the_head_of_several_nodes(run, cluster):
    ((_, record),) = run(plan_for(cluster, ["tiny"], nodes=2))
    assert record["outcome"] == "ok", record["failure"]
    assert metric(record, "acceptance")["value"] == 100
    assert record["sanity"]["text"]["agrees"]


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("foreign", "draft model vocab type must match target model to use speculation"),
        ("mtp", "failed to create MTP context"),
    ],
)
def test_a_draft_that_the_model_cannot_use_is_unsupported_in_the_servers_words(
    run, cluster, draft, words
):
    ((_, record),) = run(plan_for(cluster, [draft]))
    assert record["outcome"] == "unsupported"
    assert words in record["failure"]["reason"]
    assert repr(draft) in record["failure"]["reason"]


def test_tokens_that_are_accepted_although_the_model_has_others_are_gibberish(
    run, cluster, monkeypatch
):
    # The server makes acceptance up, which a sweep is not let to ask for.
    for given in ({"arguments": ["--spec-synth-len 3"]}, {"environment": [MADE_UP]}):
        with pytest.raises(InputError, match="itself; use "):
            plan_for(cluster, ["other"], **given)
    as_asked = options.of_draft

    def made_up(*arguments):
        words = as_asked(*arguments)
        return [*words, "--spec-synth-len", "3"] if words else words

    monkeypatch.setattr(options, "of_draft", made_up)
    ((_, record),) = run(plan_for(cluster, ["other"]))
    assert record["outcome"] == "gibberish"
    assert "nats from those of one node, without a draft" in record["failure"]["reason"]


def test_a_draft_that_no_node_has_is_skipped_with_its_path(run, cluster):
    ((_, record),) = run(plan_for(cluster, ["/models/no-such-draft.gguf"]))
    assert record["outcome"] == "skipped"
    assert "has no draft '/models/no-such-draft.gguf'" in record["failure"]["reason"]
