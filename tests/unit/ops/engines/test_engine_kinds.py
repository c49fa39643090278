"""Which node builds an engine, and which nodes get a copy."""

from dataclasses import replace

import pytest

from nixwulf.core.errors import GateError
from nixwulf.ops.engines.install import BuildState, kinds_of, parse
from nixwulf.plugins.engines import all_engines, find

RECIPE = find("llama.cpp").node_build()
NODE = BuildState("/home/me/.cache/nixwulf/engines", "Linux", "zen", 2**25, features="cpu")
LACKING = replace(NODE, missing="cmake c++", tools="sudo apt-get install cmake g++ make")


def kinds(**states):
    return kinds_of(states, RECIPE, "llama.cpp")


def built(state=NODE):
    """The node after an installation."""
    (kind,) = kinds(n=state)
    return replace(state, build=kind.build)


def test_the_first_node_of_a_kind_builds_and_the_others_get_copies():
    zen, arm = kinds(a=NODE, b=replace(NODE, kind="arm"), c=NODE)
    assert (zen.first, zen.builds, zen.nodes, zen.copies) == ("a", True, ("a", "c"), ("c",))
    assert (arm.first, arm.builds, arm.copies) == ("b", True, ())
    assert zen.build.partition("-")[0] == arm.build.partition("-")[0] == RECIPE.version
    assert zen.build != arm.build


def test_a_node_that_has_the_build_is_copied_from_and_nothing_is_built():
    (kind,) = kinds(new=NODE, old=built())
    assert (kind.first, kind.builds, kind.copies) == ("old", False, ("new",))
    (kind,) = kinds(a=built(), b=built())
    assert (kind.builds, kind.copies) == (False, ())


def test_the_node_with_the_most_tools_for_its_gpu_builds_for_all():
    gpu = replace(NODE, features="cpu vulkan rdma")
    (kind,) = kinds(a=NODE, b=gpu)
    assert (kind.first, kind.features, kind.copies) == ("b", "cpu vulkan rdma", ("a",))


def test_tools_that_came_later_make_a_new_build_and_tools_that_went_none():
    (kind,) = kinds(a=replace(built(), features="cpu vulkan"), b=built())
    assert (kind.first, kind.builds, kind.copies) == ("a", True, ("b",))
    had = replace(built(replace(NODE, features="cpu vulkan")), features="cpu")
    (kind,) = kinds(a=NODE, b=had)
    assert (kind.first, kind.builds, kind.features) == ("b", False, "cpu vulkan")


def test_a_build_of_another_source_is_replaced():
    (kind,) = kinds(a=replace(NODE, build="0.3.1-0123456789ab cpu"))
    assert kind.builds


def test_a_node_without_compiler_is_no_builder_and_a_kind_of_such_is_refused():
    (kind,) = kinds(a=LACKING, b=NODE)
    assert (kind.first, kind.copies) == ("b", ("a",))
    (kind,) = kinds(a=LACKING, b=replace(built(), missing="cmake"))
    assert (kind.first, kind.builds) == ("b", False)
    with pytest.raises(GateError) as caught:
        kinds(a=LACKING, b=LACKING, c=replace(NODE, kind="arm"))
    assert caught.value.message == (
        "Node 'a' cannot build llama.cpp without cmake, c++, nor can b; run 'sudo apt-get install "
        "cmake g++ make' on one of them and repeat this, or take an image by --toolbox."
    )


def test_a_full_disk_is_refused_where_something_is_built_and_only_there():
    with pytest.raises(GateError, match=r"Node 'a' has 0.50 GiB free in .* llama.cpp needs 2;"):
        kinds(a=replace(NODE, free_kib=2**19))
    (kind,) = kinds(a=replace(built(), free_kib=0))
    assert not kind.builds


def test_a_mac_is_refused_by_its_name():
    with pytest.raises(GateError, match="Node 'm' runs 'Darwin'"):
        kinds(m=replace(NODE, system="Darwin"))


def test_what_a_node_prints_is_read_whatever_its_login_adds():
    state = parse(
        "Welcome to Debian\nroot /r\nsystem Linux\nkind 12-34\nfree_kib 17\nbuild 1-ab cpu rdma\n"
        "own /usr/bin/llama-bench\nown /opt/x/llama-server\nfeatures cpu\nmissing cmake c++\n"
        "tools sudo dnf install cmake\nidle sudo dnf install glslc\n\n"
    )
    assert state == BuildState(
        *("/r", "Linux", "12-34", 17, "1-ab cpu rdma"),
        own={"llama-bench": "/usr/bin/llama-bench", "llama-server": "/opt/x/llama-server"},
        missing="cmake c++",
        tools="sudo dnf install cmake",
        features="cpu",
        idle="sudo dnf install glslc",
    )


def test_a_node_is_built_for_as_this_machine_is_but_for_what_it_has():
    assert {name for name, one in all_engines().items() if one.node_build()} == {"llama.cpp"}
    assert {"-DGGML_RPC=ON", "-DBUILD_SHARED_LIBS=OFF"} < set(RECIPE.options)
    assert RECIPE.options[-4:] == ("--", "llama-bench", "llama-server", "ggml-rpc-server")
