"""The session of a record: boot, system and day, of what the record holds."""

import pytest

from nixwulf.results.identity import session_of
from record_factory import case, ok, published

FACTS = {"boot": "92a89bfd", "closure": "0zq1v7y5p0bq", "kernel": "6.17.1", "os": "NixOS 26.05"}


def record(day="2026-11-24", of=None, **facts):
    document = ok(of or case(2), {"decode": [1.0]})
    nodes = [{**node, "facts": {**FACTS, **facts}} for node in document["nodes"]]
    return {**document, "nodes": nodes, "started": f"{day}T10:00:00.000Z"}


def test_runs_of_one_boot_system_and_day_are_of_one_session_whatever_they_measure():
    assert session_of(record()) == session_of(record(of=case(2, "cable", model="large")))


@pytest.mark.parametrize(
    "change",
    [{"day": "2026-11-25"}, {"boot": "00000000"}, {"closure": "111111111111"}],
    ids=["another day", "a reboot", "another system without a reboot"],
)
def test_another_boot_system_or_day_is_another_session(change):
    assert session_of(record(**change)) != session_of(record())


def test_without_nixos_the_kernel_and_the_release_are_the_system():
    assert session_of(record(closure="")) != session_of(record(closure="", kernel="6.18.0"))


def test_numbers_of_others_are_each_of_a_session_of_their_own():
    one, two = (published(case(), {"decode": [1.0]}, id=name) for name in ("p1", "p2"))
    assert session_of(one) == session_of(one) != session_of(two)
