"""What the answers of a load say, and what a reader of them is warned of."""

from dataclasses import replace

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.plugins.benchmarks.serve import Asked, conditions, metrics, warnings
from nixwulf.plugins.benchmarks.session import _of_turn
from nixwulf.plugins.runtime.openai_stream import Answer, StreamError
from nixwulf.plugins.runtime.request_load import Pass
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.plugins.runtime.texts import Counting
from nixwulf.sweep.plan import make_plan, parse_sweep


def answer(sent=0.0, came=(1.0, 1.25, 1.75), *, tokens=3, prompt=16, cached=0, timings=None):
    return Answer(sent, came, prompt, tokens, cached, "length", timings or {})


def a_pass(*answers, client_seconds=0.1):
    return Pass(answers or (answer(),), client_seconds)


def by_name(*passes):
    return {metric.name: metric for metric in metrics(passes, "warm", {"n_gen": 3})}


def turns(answers):
    return _of_turn(answers, "warm", {}, drafts=False)


COUNTING = Counting(1, 1)


def told(*passes, counting=COUNTING):
    return warnings(passes, Asked(16, 3, counting))


def test_times_and_speeds_are_of_what_came_when():
    late = answer(sent=3.0, came=(4.0, 4.25, 4.75))
    found = by_name(a_pass(answer(), answer(sent=0.5)), a_pass(answer(), late))
    assert found["ttft"].samples == (1000, 500, 1000, 1000)
    assert found["itl"].samples == (250, 500) * 4
    assert found["decode"].samples == (2.6667,) * 4
    assert found["throughput"].samples == (3.4286, 1.2632)
    assert found["throughput"].windows == ((0.0, 1.75), (0.0, 4.75))
    assert found["client_busy"].samples == (5.7143, 2.1053)
    assert {m.unit for m in found.values()} == {"ms", "tok/s", "%"}


def test_each_pass_is_a_window_of_the_throughput_and_of_nothing_else():
    found = by_name(a_pass(answer(), answer(sent=0.5)), a_pass(answer(sent=5.0, came=(6.0, 9.0))))
    assert found["throughput"].windows == ((0.0, 1.75), (5.0, 9.0))
    assert {metric.windows for name, metric in found.items() if name != "throughput"} == {()}


def test_times_are_distributions():
    documents = {name: metric.document() for name, metric in by_name(a_pass()).items()}
    assert documents["itl"]["percentiles"] == {"p50": 250, "p95": 500, "p99": 500}
    assert {"percentiles" in documents[name] for name in ("ttft", "itl", "decode")} == {True}
    assert "percentiles" not in documents["throughput"]


def test_the_servers_own_figures_are_metrics_when_every_answer_has_them():
    own = {"prompt_ms": 900.0, "predicted_per_second": 2.5}
    found = by_name(a_pass(answer(timings=own), answer(timings=own)))
    assert found["server_prompt"].samples == (900.0, 900.0)
    assert found["server_decode"].samples == (2.5, 2.5)
    found = by_name(a_pass(answer(timings=own), answer()))
    assert "server_prompt" not in found
    assert "server_decode" not in found


def test_answers_that_come_in_one_piece_are_no_stream():
    with pytest.raises(RunFailure, match="does not stream") as caught:
        by_name(a_pass(answer(came=(1.0, 1.0, 1.0))))
    assert caught.value.outcome == "failed"


def test_an_answer_of_one_token_has_no_speed_and_hurts_no_other():
    found = by_name(a_pass(answer(), answer(came=(1.0,), tokens=1)))
    assert len(found["ttft"].samples) == 2
    assert len(found["decode"].samples) == 1


def test_an_answer_that_comes_in_bulk_gives_no_time_between_tokens():
    bulk = answer(came=(1.0, 1.00001, 1.00002, 1.1), tokens=4)
    found = by_name(a_pass(answer(), bulk))
    assert {"ttft", "throughput"} <= found.keys()
    assert not {"decode", "itl"} & found.keys()
    assert any("decode and itl would not be times" in words for words in told(a_pass(bulk)))


@pytest.mark.parametrize(
    ("came", "tokens"),
    [
        ((1.0, 1.0003), 4096),
        ((1.0, 1.05), 256),
        ((1.0, 1.00001), 4096),
        ((0.00001,), 16),
    ],
)
@pytest.mark.parametrize("of", [by_name, lambda one: turns(one.answers)])
def test_more_tokens_than_chunks_can_have_brought_are_no_speed(of, came, tokens):
    with pytest.raises(StreamError, match="The server does not count"):
        of(a_pass(answer(came=came, tokens=tokens), answer()))


@pytest.mark.parametrize(
    ("came", "tokens", "known"),
    [
        ((1.0, 1.002), 16, False),
        ((1.0, 1.002, 1.004, 1.006), 16, False),
        ((1.0, 1.0003), 32, False),
        ((1.0, 1.2, 1.4), 64, False),
        ((1.0, 1.1), 2, True),
        ((1.0, 1.1, 1.2), 4, True),
        (tuple(1.0 + n / 10 for n in range(8)), 64, True),
        (tuple(1.0 + n / 10 for n in range(12)), 16, True),
    ],
)
@pytest.mark.parametrize(
    ("of", "name"), [(by_name, "decode"), (lambda one: turns(one.answers), "turn_decode")]
)
def test_a_speed_is_told_where_enough_chunks_came_to_know_the_tokens_of_the_first(
    of, name, came, tokens, known
):
    one = a_pass(answer(came=came, tokens=tokens))
    assert (name in {getattr(metric, "name", metric) for metric in of(one)}) == known
    assert any("came in bulk" in words for words in told(one)) != known


@pytest.mark.parametrize("drafts", [False, True])
def test_a_server_that_was_seen_to_hold_answers_back_has_no_speed_of_decode(drafts):
    held = a_pass(replace(answer(), held=True))
    found = {one.name for one in metrics([held], "warm", {}, drafts=drafts)}
    assert {"ttft", "throughput"} <= found
    assert not {"decode", "itl"} & found


def test_tokens_of_a_draft_come_together():
    drafted = a_pass(answer(came=(1.0, 1.5), tokens=200))
    assert {"decode", "throughput"} <= {
        one.name for one in metrics([drafted], "warm", {}, drafts=True)
    }


def test_a_clean_run_has_no_warning():
    assert told(a_pass()) == []


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (a_pass(answer(), answer(tokens=4)), "the first 3 and 4"),
        (a_pass(answer(prompt=17)), "the first 17 tokens instead of 16"),
        (a_pass(answer(tokens=2)), "the first 2 tokens instead of 3 (finish_reason 'length')"),
        (a_pass(answer(cached=8)), "from its cache in part, the first 8 tokens"),
        (
            a_pass(answer(came=(1.0, 1.00001, 1.5))),
            "Of 2 chunks 1 were read at once",
        ),
        (a_pass(client_seconds=1.4), "busy for 80% of the time"),
    ],
)
def test_what_is_odd_is_a_warning(one, words):
    assert any(words in warning for warning in told(one))


def test_a_chats_template_in_the_cache_is_nothing_odd():
    assert told(a_pass(answer(cached=8)), counting=Counting(8, 1)) == []


# no output: parameters of a case
ASKED = {"concurrency": 1, "requests": 1, "n_prompt": 16, "n_gen": 3, "api": "chat"}
UNCOUNTED = a_pass(answer(prompt=None))


def test_without_usage_a_record_says_that_chunks_were_taken_for_tokens():
    (words,) = told(UNCOUNTED)
    assert "Of 1 answers 1 streamed no usage, the first 3 chunks with text" in words
    found = conditions({**ASKED, "ignore_eos": True}, [UNCOUNTED], COUNTING)
    assert found == {**ASKED, "ignore_eos": True, "counted_by": "chunks"}


def test_without_any_count_a_record_has_the_words_of_a_prompt_and_no_tokens():
    assert any("had 16 words of three letters" in words for words in told(UNCOUNTED, counting=None))
    found = conditions({**ASKED, "ignore_eos": True}, [UNCOUNTED], None)
    assert found["prompt_words"] == 16
    assert "n_prompt" not in found


def test_counts_of_the_server_are_not_mentioned_in_the_conditions():
    found = conditions({**ASKED, "threads": 4, "ignore_eos": False}, [a_pass()], COUNTING)
    assert found == {**ASKED, "ignore_eos": False}


@pytest.mark.parametrize(
    ("last", "whole"),
    [
        (answer(), True),
        (answer(tokens=2), False),
        (replace(answer(), finish="stop"), True),
        (replace(answer(prompt=None, tokens=2), finish="length"), True),
        (replace(answer(prompt=None, tokens=2), finish="stop"), False),
    ],
)
def test_the_end_of_a_text_was_ignored_only_where_no_answer_ended_early(last, whole):
    passes = [a_pass(), a_pass(answer(), last)]
    assert conditions({**ASKED, "ignore_eos": True}, passes, COUNTING)["ignore_eos"] is whole
    assert conditions({**ASKED, "ignore_eos": False}, passes, COUNTING)["ignore_eos"] is False


def test_an_answer_that_is_short_in_chunks_is_not_called_short_in_tokens():
    short = a_pass(answer(came=(1.0, 1.25), tokens=2, prompt=None))
    assert any("the first 2 chunks with text instead of 3 (" in words for words in told(short))


def test_fewer_requests_than_slots_are_left_out_of_the_plan():
    document = {
        "name": "mine",
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "benchmark": ["serve"],
            "model": ["tiny"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": {"concurrency": [1, 8], "requests": [4]},
        },
    }
    plan = make_plan(parse_sweep(document, "mine.yaml"), load_cluster("lab"))
    assert [case.parameters["concurrency"] for case in plan.cases] == [1]
    assert [left.reason for left in plan.left_out] == ["4 requests cannot be 8 at once"]


@pytest.mark.parametrize(
    ("benchmark", "parameters", "most"),
    [
        ("serve", {"concurrency": [1_000_000], "requests": [1_000_000]}, 1024),
        ("serve", {"requests": [1_000_000]}, 100_000),
        ("session", {"concurrency": [1_000_000]}, 1024),
        ("session", {"turns": [1_000_000]}, 10_000),
        ("serve", {"requests": [100_000], "n_prompt": [1000]}, 1 << 25),
        ("session", {"system": [100_000], "turns": [500]}, 1 << 25),
    ],
)
def test_more_than_any_cluster_serves_is_refused_before_anything_is_made(
    benchmark, parameters, most
):
    document = {
        "name": "mine",
        "models": {"tiny": {"random": {}}},
        "matrix": {
            "benchmark": [benchmark],
            "model": ["tiny"],
            "nodes": [1],
            "parallelism": ["single"],
            "parameters": parameters,
        },
    }
    with pytest.raises(InputError, match=f"{most}"):
        make_plan(parse_sweep(document, "mine.yaml"), load_cluster("lab"))
