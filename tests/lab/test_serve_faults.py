"""Each fault of each process of what is served is noticed in its limit and healed in its time.

'pytest -s' shows a line of figures for each.
"""

import json
import threading
import time
from datetime import datetime

import pytest
from test_served_in_the_lab import ask_for, asked, happened, kill, lab, until  # noqa: F401

pytestmark = pytest.mark.nightly
NAME, PORT = "faulty", 18060
# What the issue of serve allows beside the watch's limit, and beside the time to load.
NOTICED_S, HEALED_S = 10.0, 30.0
PROCESSES = {
    "pipeline": (("n1", "llama-server"), ("n2", "ggml-rpc-server")),
    "replicas": (("n1", "llama-server"), ("n2", "llama-server")),
}
CASES = [(case, *process) for case, both in PROCESSES.items() for process in both]
ROUNDS = range(3)
SMALL = 'mkdir -p "$HOME/.local/state" && mount -t tmpfs -o size=8m none "$HOME/.local/state"'
FILL = 'cat /dev/zero >"$HOME/.local/state/filled" 2>/dev/null; :'


@pytest.fixture(scope="module", params=[*PROCESSES])
def served(request, lab, asked):  # noqa: F811
    """A case kept on nodes whose states are on a small disk: its name, limits and time to load."""
    from nixwulf.nodes.ssh import connections

    found = connections(lab.cluster, lab.ssh_config)
    for node in found.values():
        node.script(SMALL)
    said = asked("serve", f"{request.param}.yaml", "--name", NAME, "--port", str(PORT))
    assert "Nobody watches it" not in said
    (service,) = json.loads(asked("serve", "ls", "--format", "json"))["services"]
    begin = time.monotonic()
    asked("serve", "restart", NAME)
    yield request.param, service["limits"], time.monotonic() - begin
    asked("serve", "stop", NAME, "--forget")
    for node in found.values():
        node.script('umount "$HOME/.local/state"')
        node.close()


def answers_after(node, seconds):
    """How long it takes until an answer comes again."""
    begin = time.monotonic()
    while not ask_for(node, PORT, 4):
        assert time.monotonic() - begin < seconds, "no answer"
        time.sleep(0.5)
    return time.monotonic() - begin


def told(case, process, fault, limit_s, noticed_s, load_s, healed_s):
    print(
        f"\n{case:9} {process:19} {fault:5} noticed {noticed_s:5.1f} s (limit {limit_s:.0f} + "
        f"{NOTICED_S:.0f}), healed {healed_s:5.1f} s (load {load_s:.1f} + {HEALED_S:.0f})",
        flush=True,
    )
    assert noticed_s <= limit_s + NOTICED_S
    assert healed_s <= load_s + HEALED_S


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("fault", ["KILL", "STOP", "full"])
@pytest.mark.parametrize(("case", "where", "program"), CASES)
def test_a_fault_of_a_process_is_noticed_and_healed(
    served,
    asked,  # noqa: F811
    nodes,
    case,
    where,
    program,
    fault,
    number,
):
    running, limits, load_s = served
    if running != case:
        pytest.skip("it is of the other case")
    head, node = nodes["n1"], nodes[where]
    if number == 0:
        asked("serve", "restart", NAME)  # a person's start: restarts count anew
    answers_after(head, 60)
    since = len(happened(asked, NAME))
    limit_s = limits["still_s"] if fault == "STOP" else 0.0
    if fault == "STOP":
        for _ in range(4):  # so that each server holds one
            threading.Thread(target=ask_for, args=(head, PORT, 480), daemon=True).start()
        time.sleep(2)
    if fault == "full":
        node.script(FILL)
    clock = time.time()
    kill(node, "STOP" if fault == "STOP" else "KILL", program)
    if fault == "full":
        # On a full disk no event is kept: an answer of the server itself shows that it is back.
        healed_s = answers_after(head, load_s + NOTICED_S + HEALED_S)
        node.script('rm -f "$HOME/.local/state/filled"')
        told(case, f"{where}-{program}", fault, limit_s, 0.0, load_s + NOTICED_S, healed_s)
        until(asked, NAME, "healed", since, 60) if where != "n1" else None
        return
    event = until(asked, NAME, "restarted", since, limit_s + NOTICED_S + 60)
    noticed_s = datetime.fromisoformat(event["at"]).timestamp() - clock - event["seconds"]["kept"]
    healed_s = until(asked, NAME, "healed", since, load_s + HEALED_S + 60)["seconds"]["healed"]
    told(case, f"{where}-{program}", fault, limit_s, noticed_s, load_s, healed_s)
    assert ask_for(head, PORT, 8)
