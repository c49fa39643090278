"""The ports that nodes reach each other on are those that the flake's firewall opens."""

import pytest

from nixwulf.inventory.fabrics import FREE, TCP
from nixwulf.nodes.link import PORT
from nixwulf.ops.models.push import PORT as MODELS_PORT
from nixwulf.plugins.benchmarks import all_benchmarks
from nixwulf.plugins.engines import all_engines

# APIs, which the driver reaches through ssh: no node needs them open.
# no output: names of engines
APIS = {
    "distributed-llama": {9990},
    "mesh-llm": {9337, 3131},
    "mlx": {50054},
    "vllm": {8000},
}
# What no plug-in listens on.
OF_THE_DRIVER = {PORT, MODELS_PORT}
LISTENERS = {
    name: set(plugin.ports)
    for name, plugin in {**all_engines(), **all_benchmarks()}.items()
    if hasattr(plugin, "ports")
}


@pytest.mark.parametrize("name", LISTENERS)
def test_each_port_of_a_plugin_is_an_api_or_is_opened_to_the_nodes(name):
    assert LISTENERS[name] - APIS.get(name, set()) <= set(TCP.values())
    assert APIS.get(name, set()) <= LISTENERS[name]


def test_each_port_that_is_opened_has_a_plugin_that_listens_there():
    assert set(TCP.values()) == set().union(*LISTENERS.values(), OF_THE_DRIVER) - set().union(
        *APIS.values()
    )


def test_the_free_ports_are_the_kernels_default():
    # Documentation/networking/ip-sysctl.rst, ip_local_port_range.
    assert FREE == (32768, 60999)
