"""The switch's forwarding, without sockets and clocks: who gets a frame, and when."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from nixwulf.inventory.cluster import Shape
from nixwulf.nodes.lab.switch import HEADER, LineTiming, Switch

BROADCAST = 255


def frame(destination: int, source: int, size: int = 64) -> bytes:
    def address(number: int) -> bytes:
        return b"\xff" * 6 if number == BROADCAST else bytes([2, 0, 0, 0, 0, number])

    return bytes(HEADER) + (address(destination) + address(source)).ljust(size, b"\0")


def switch(ports: int = 3, **shape: float) -> Switch:
    """A switch that has learned which port n's address n is at."""
    made = Switch(ports)
    for port in range(ports):
        made.take(frame(BROADCAST, port), port, 0)
    made.waiting.clear()
    made.line = LineTiming.of(Shape(**shape))
    return made


def out(made: Switch) -> list[tuple[int, int]]:
    """(release time in ns, port) of all that waits, in order."""
    return [(w[0], w[2]) for w in (heapq.heappop(made.waiting) for _ in range(len(made.waiting)))]


def test_a_frame_leaves_at_the_port_of_its_address_one_delay_later() -> None:
    made = switch(delay_us=50)
    made.take(frame(2, 0), 0, 1000)
    assert out(made) == [(51_000, 2)]


def test_an_unknown_address_and_a_broadcast_leave_at_every_other_port() -> None:
    made = switch(4)
    made.take(frame(99, 1), 1, 0)
    made.take(frame(BROADCAST, 1), 1, 10)
    assert sorted(out(made)) == [(0, 0), (0, 2), (0, 3), (10, 0), (10, 2), (10, 3)]


def test_an_address_that_moved_is_found_at_its_new_port() -> None:
    made = switch()
    made.take(frame(BROADCAST, 2), 1, 0)
    made.waiting.clear()
    made.take(frame(2, 0), 0, 0)
    assert out(made) == [(0, 1)]


def test_a_frame_takes_its_size_over_the_rate_once() -> None:
    made = switch(rate_gbps=1, delay_us=100)
    made.take(frame(1, 0, 1000), 0, 0)
    assert out(made) == [(8_000 + 100_000, 1)]


def test_frames_of_one_sender_share_its_uplink() -> None:
    made = switch(rate_gbps=1)
    made.take(frame(1, 0, 1000), 0, 0)
    made.take(frame(2, 0, 1000), 0, 0)
    assert out(made) == [(8_000, 1), (16_000, 2)]


def test_frames_of_two_senders_share_the_receivers_downlink() -> None:
    made = switch(rate_gbps=1)
    made.take(frame(2, 0, 1000), 0, 0)
    made.take(frame(2, 1, 1000), 1, 0)
    assert out(made) == [(8_000, 2), (16_000, 2)]


def test_two_directions_do_not_share() -> None:
    made = switch(rate_gbps=1)
    made.take(frame(1, 0, 1000), 0, 0)
    made.take(frame(0, 1, 1000), 1, 0)
    assert out(made) == [(8_000, 1), (8_000, 0)]


def test_a_full_queue_drops_and_counts() -> None:
    made = switch(rate_gbps=1)
    for _ in range(30):
        made.take(frame(1, 0, 60_000), 0, 0)
    assert made.dropped > 0
    assert len(made.waiting) == 30 - made.dropped
    assert 0.9e6 < len(made.waiting) * 60_000 <= 1e6  # the 1 MB of a slow port


def test_loss_of_all_forwards_nothing_and_loss_of_none_everything() -> None:
    for percent, forwarded in ((100, 0), (0, 200)):
        made = switch(loss_percent=percent)
        for now in range(200):
            made.take(frame(1, 0), 0, now)
        assert len(made.waiting) == forwarded
        assert made.lost == 200 - forwarded


def test_loss_drops_about_its_share_and_the_same_frames_in_each_run() -> None:
    def survivors() -> list[int]:
        made = switch(loss_percent=10)
        for now in range(5000):
            made.take(frame(1, 0), 0, now)
        return [time for time, _ in out(made)]

    first = survivors()
    assert 0.88 * 5000 < len(first) < 0.92 * 5000
    assert first == survivors()


frames = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 2), st.integers(64, 65_000), st.integers(0, 100_000)
    ),
    max_size=60,
)


@given(frames, st.sampled_from([None, 1.0, 10.0]), st.integers(0, 1000))
def test_no_frame_is_early_overtakes_or_vanishes(
    sent: list[tuple[int, int, int, int]], rate: float | None, delay_us: int
) -> None:
    made = switch(**{"delay_us": delay_us} | ({} if rate is None else {"rate_gbps": rate}))
    before = made.forwarded
    now = 0
    for source, target, size, pause in sent:
        now += pause
        waiting = {w[1] for w in made.waiting}
        made.take(frame(target, source, size), source, now)
        for release, order, *_ in made.waiting:
            if order not in waiting:
                assert release >= now + delay_us * 1000
    assert made.forwarded - before + made.dropped == len(sent)
    last = [0, 0, 0]
    for release, order, port, _, _ in sorted(made.waiting, key=lambda w: w[1]):
        assert release >= last[port], order
        last[port] = release
