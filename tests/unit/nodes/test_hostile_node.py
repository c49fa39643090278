"""What a node or its ssh says is a sentence, whatever it is."""

from ipaddress import IPv4Interface
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from nixwulf.core.errors import NixwulfError
from nixwulf.core.printed import check_numbers
from nixwulf.inventory.cluster import Node
from nixwulf.nodes.ssh import mismatch
from nixwulf.ops.deploy.machine import gather_machines
from nixwulf.ops.models.push import on_node
from nixwulf.ops.survey import machines
from nixwulf.ops.survey.wires import WireEnd, try_pairs

NODE = Node("n1", "lab", "me@fw1")


# hand-made: no kernel and no disk prints such numbers (form: proc_meminfo(5), store.py)
TOO_LARGE = [
    (f"/proc/meminfo:MemTotal: {'9' * 5000} kB\n", 5000),
    (f"/proc/meminfo:MemTotal: {'9' * 39} kB\n", 39),
    (f"/proc/meminfo:MemTotal: {2**54} kB\n", 17),
    (f'{{"free": {2**64}}}', 20),
    (f"counter:-{2**63 + 1}\n", 20),
]


@pytest.mark.parametrize(("text", "digits"), TOO_LARGE)
def test_a_number_that_no_machine_has_is_a_sentence(text, digits):
    with pytest.raises(NixwulfError, match=f"'n1' gives .*, a number of {digits} digits"):
        check_numbers(NODE.name, text)


def test_numbers_of_64_bits_and_texts_of_digits_are_believed():
    # hand-made: the largest counter and a serial number of digits (form: proc_meminfo(5), lsblk)
    text = f'counter:{2**64 - 1} load 0.{"3" * 30} "serial": "{"9" * 30}" MemTotal: {2**40} kB\n'
    assert check_numbers(NODE.name, text) == text


def test_what_a_nodes_program_of_models_prints_has_such_numbers_neither():
    # hand-made: no disk has so much free (form: store.py of this project)
    done = CompletedProcess([], 0, f'{{"free": {10**38}}}', "")
    node = SimpleNamespace(node=NODE, run=lambda *_, **__: done)
    with pytest.raises(NixwulfError, match="39 digits"):
        on_node(node, "list", folder="models")


def test_neither_a_survey_nor_a_deploy_believes_such_a_number(monkeypatch):
    end = WireEnd("n1", "enp1s0", IPv4Interface("10.0.0.1/24"), 1500)
    # hand-made: no kernel prints such a number (form: proc_meminfo(5))
    answer = f"== memory\nMemTotal: {'9' * 5000} kB\nenp1s0 10.0.0.2 {'9' * 5000}\n"
    node = SimpleNamespace(node=NODE, script=lambda *_, **__: answer)
    monkeypatch.setattr(machines, "open_all", lambda _: {})
    assert "5000 digits" in gather_machines([node])["n1"].message
    with pytest.raises(NixwulfError, match="5000 digits"):
        machines.survey([node])
    with pytest.raises(NixwulfError, match="5000 digits"):
        try_pairs([(end, end)], {"n1": node})


def test_a_changed_host_key_is_one_sentence_with_the_command():
    # hand-made: a host key changes on nobody's wish (form: OpenSSH 9)
    words = (
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
        '  ssh-keygen -f "/root/.ssh/known_hosts" -R "fw1"\nHost key verification failed.\n'
    )
    said = mismatch(NODE, words)
    assert "'ssh-keygen -R fw1'" in said
    assert "@" not in said
