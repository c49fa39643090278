"""The watch over a server: which samples make which state; whatever moves is left alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.sweep.serve.watch import (
    MOST_RESTARTS,
    RankSign,
    ServerSample,
    Watched,
    WatchLimits,
    movements,
    stay_down,
    step,
)

LOOK_S = 5.0
LIMITS = WatchLimits(start_s=100, still_s=60, lost_s=20)
HEAD = RankSign("n1-head", "n1", running=True)
WORKER = RankSign("n2-rpc", "n2", running=True)
IDLE = ServerSample(0.0, (WORKER, HEAD), True, 0, 0, 0, 0)
HOLDS = replace(IDLE, requests=1)


def watched(*samples, limits=LIMITS):
    """The states that samples make, five seconds after each other."""
    known, states = Watched(), []
    for number, sample in enumerate(samples):
        known = step(known, replace(sample, at=number * LOOK_S), limits)
        states.append(known.state)
    return states, known


def looks(seconds):
    return int(seconds / LOOK_S)


def with_cpu(sample, cpu_s):
    return replace(sample, ranks=tuple(replace(one, cpu_s=cpu_s) for one in sample.ranks))


def test_a_server_starts_then_is_idle_then_computes_its_prompt_then_its_tokens():
    loading = replace(IDLE, answers=False, requests=None)
    states, _ = watched(
        loading, IDLE, replace(HOLDS, prompted=512), replace(HOLDS, prompted=512, generated=9), IDLE
    )
    assert states == ["starting", "idle", "prefilling", "decoding", "idle"]


def test_a_held_request_without_any_movement_is_a_stall_after_the_limit_and_not_before():
    states, known = watched(IDLE, *[HOLDS] * (looks(LIMITS.still_s) + 1))
    assert states[-2:] == ["prefilling", "stalled"]
    assert known.why == "It holds a request, and tokens, fabric and CPU have stood still for 65 s."


def test_a_server_that_only_stops_answering_is_a_stall():
    silent = replace(IDLE, answers=False, requests=None)
    states, known = watched(IDLE, *[silent] * (looks(LIMITS.still_s) + 1))
    assert states[-1] == "stalled"
    assert known.why.startswith("It does not answer, and ")


@pytest.mark.parametrize("sign", ["prompted", "generated", "fabric_bytes", "CPU", "watts"])
def test_one_sign_that_moves_keeps_a_server_from_being_stalled(sign):
    limits = replace(LIMITS, busy_watts=40.0 if sign == "watts" else None)

    def at(number):
        if sign == "CPU":
            return with_cpu(HOLDS, number * 2.0)
        if sign == "watts":
            return replace(HOLDS, watts=95.0)
        return replace(HOLDS, **{sign: number * 1_000_000})

    states, _ = watched(*map(at, range(200)), limits=limits)
    assert not {"stalled", "dead"} & {*states}


def test_what_only_waiting_takes_is_no_progress():
    def waiting(number):
        return with_cpu(replace(HOLDS, fabric_bytes=500 * number), 0.01 * number)

    states, _ = watched(IDLE, *map(waiting, range(looks(LIMITS.still_s) + 2)))
    assert states[-1] == "stalled"


def test_watts_tell_in_place_of_threads_that_burn_a_core_while_they_wait():
    limits = replace(LIMITS, busy_watts=40.0)

    def spinning(number):
        return with_cpu(replace(HOLDS, watts=18.0), 5.0 * number)

    states, known = watched(IDLE, *map(spinning, range(looks(LIMITS.still_s) + 2)), limits=limits)
    assert states[-1] == "stalled"
    assert "watts have stood still" in known.why


def test_a_process_that_has_ended_is_dead_at_once_whatever_else_moves():
    gone = replace(HOLDS, ranks=(replace(WORKER, running=False), HEAD), generated=77)
    states, known = watched(HOLDS, gone)
    assert states[-1] == "dead"
    assert known.why == "'n2-rpc' on node 'n2' has ended."


def test_a_node_that_does_not_answer_is_dead_only_when_nothing_moves():
    lost = replace(HOLDS, ranks=(replace(WORKER, running=None), HEAD))
    states, known = watched(HOLDS, *[lost] * (looks(LIMITS.lost_s) + 2))
    assert states[-1] == "dead"
    assert known.why.startswith("Node 'n2' does not answer, and nothing has moved")
    working = (replace(lost, generated=number) for number in range(100))
    assert "dead" not in watched(HOLDS, *working)[0]


def test_a_lost_node_of_an_idle_server_is_told_by_a_request_that_tries_it_out():
    lost = replace(IDLE, ranks=(replace(WORKER, running=None), HEAD))
    answered = (replace(lost, generated=number) for number in range(0, 100))
    assert "dead" not in watched(IDLE, *answered)[0], "the fabric is there, only ssh is not"
    assert watched(IDLE, *[lost] * 6)[0][-1] == "dead"


def test_a_stopped_process_is_a_stall_though_another_one_burns_cpu():
    def stopped(number):
        return with_cpu(replace(HOLDS, ranks=(replace(WORKER, stopped=True), HEAD)), 5.0 * number)

    states, known = watched(IDLE, *map(stopped, range(looks(LIMITS.still_s) + 1)))
    assert states[-1] == "stalled"
    assert known.why == "'n2-rpc' on node 'n2' is stopped, and no token has come for 65 s."


def test_a_refused_request_of_our_own_is_dead():
    assert watched(IDLE, replace(IDLE, canary="failed"))[0][-1] == "dead"


def test_a_start_may_take_as_long_as_something_moves():
    loading = replace(IDLE, answers=False, requests=None)
    reads = (with_cpu(loading, float(number)) for number in range(400))
    assert {*watched(*reads)[0]} == {"starting"}
    states, known = watched(*[loading] * (looks(LIMITS.start_s) + 2))
    assert states[-1] == "stalled"
    assert known.why.startswith("It has not answered since its start")


signs = st.builds(
    RankSign,
    st.just("n1-head"),
    st.just("n1"),
    running=st.just(True),
    stopped=st.booleans(),
    cpu_s=st.floats(0, 1e6),
)
samples = st.builds(
    ServerSample,
    at=st.just(0.0),
    ranks=st.tuples(signs),
    answers=st.booleans(),
    prompted=st.none() | st.integers(0, 10**9),
    generated=st.none() | st.integers(0, 10**9),
    requests=st.none() | st.integers(0, 64),
    fabric_bytes=st.none() | st.integers(0, 10**15),
    watts=st.none() | st.floats(0, 2000),
    canary=st.sampled_from(["none", "waiting", "answered"]),
)


@given(st.lists(samples, min_size=1, max_size=40))
def test_a_server_whose_tokens_move_within_the_limit_is_never_restarted(found):
    moving = [replace(one, generated=number) for number, one in enumerate(found)]
    assert not {"stalled", "dead"} & {*watched(*moving)[0]}


@given(st.lists(samples, min_size=1, max_size=40))
def test_a_server_whose_fabric_moves_within_the_limit_is_never_restarted(found):
    runs = [replace(one.ranks[0], stopped=False) for one in found]
    moving = [
        replace(one, ranks=(rank,), fabric_bytes=number * LIMITS.least_bytes)
        for number, (one, rank) in enumerate(zip(found, runs, strict=True))
    ]
    assert not {"stalled", "dead"} & {*watched(*moving)[0]}


@given(st.lists(samples, min_size=1, max_size=40))
def test_an_answering_server_without_requests_is_idle_whatever_its_counters_say(found):
    free = [replace(one, answers=True, requests=0, canary="none") for one in found]
    assert {*watched(*free)[0]} == {"idle"}


@given(samples, st.integers(14, 60))
def test_the_same_sample_for_longer_than_the_limit_is_a_stall_where_a_request_is_held(one, more):
    held = replace(one, answers=True, requests=1)
    limits = replace(LIMITS, busy_watts=None)
    states, _ = watched(held, *[held] * more, limits=limits)
    assert states[looks(LIMITS.still_s)] == "prefilling"
    assert states[-1] == "stalled"


@given(samples, samples)
def test_no_sign_that_one_of_two_samples_lacks_counts_as_movement(one, other):
    bare = replace(other, prompted=None, generated=None, fabric_bytes=None, watts=None)
    assert {*movements(one, bare, LIMITS)} <= {"CPU"}


@given(st.lists(st.floats(0, 7200), max_size=8), st.floats(7200, 9000))
def test_at_most_three_restarts_fall_into_any_hour(asked, now):
    done = []
    for moment in sorted([*asked, now]):
        if not stay_down(done, moment):
            done.append(moment)
    for moment in done:
        assert sum(0 <= moment - one < 3600 for one in done) <= MOST_RESTARTS
