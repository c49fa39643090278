"""What a node or its ssh says is a sentence, whatever it is."""

import pytest

from nixwulf.core.bounded import check_numbers
from nixwulf.core.errors import NixwulfError
from nixwulf.inventory.cluster import Node
from nixwulf.nodes.ssh import mismatch

NODE = Node("n1", "lab", "me@fw1")


def test_a_number_that_no_machine_has_is_a_sentence():
    with pytest.raises(NixwulfError, match="'n1' gives a number of 5000 digits"):
        check_numbers(NODE.name, f"/proc/meminfo:MemTotal: {'9' * 5000} kB\n")
    text = f"counter:{2**64}\n"
    assert check_numbers(NODE.name, text) == text


def test_a_changed_host_key_is_one_sentence_with_the_command():
    # hand-made: a host key changes on nobody's wish (form: OpenSSH 9)
    words = (
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
        '  ssh-keygen -f "/root/.ssh/known_hosts" -R "fw1"\nHost key verification failed.\n'
    )
    said = mismatch(NODE, words)
    assert "'ssh-keygen -R fw1'" in said
    assert "@" not in said
