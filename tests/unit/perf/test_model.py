"""The performance model: physics that always holds, sums done by hand, and what it refuses."""

import re
from dataclasses import replace
from math import exp, inf, log
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.inventory.platforms import load_platform, platform_names
from nixwulf.perf.inputs import (
    NAMES,
    Constants,
    FabricFacts,
    PlatformFacts,
    Spread,
    Spreads,
    Strategy,
    choose,
    fabric_facts,
    family,
    load,
    platform_facts,
)
from nixwulf.perf.predict import Prediction, predict
from nixwulf.perf.work import exchange
from round_models import DENSE, MIXTURE

# A machine and a model with round numbers: 1 GB of weights at 100 GB/s is 10 ms.
NODE = PlatformFacts("box", "amd", bandwidth_gbs=100, tflops=10, memory_gib=64)
LINK = FabricFacts("ethernet", "tcp", rtt_us=100, bandwidth_gbps=8)


def spreads(decode=0.1, prompt=0.1) -> Spreads:
    one, several = Spread(decode), Spread(prompt)
    return Spreads(one, one, several, several)


PERFECT = Constants(1, 1, 1, 0, 0, 0, 1, deviations=(0,) * 7, spreads=spreads())


def speed(
    nodes=2, model=DENSE, link=LINK, constants=PERFECT, platform=NODE, **strategy
) -> Prediction:
    strategy.setdefault("engine", "vllm")
    strategy.setdefault("parallelism", "tensor" if nodes > 1 else "single")
    return predict([platform] * nodes, model, Strategy(**strategy), link, constants=constants)


def test_one_node_reads_all_active_weights_and_the_cache_of_half_the_answer():
    told = speed(1, n_gen=200)

    assert told.parts["weights"] == pytest.approx(0.010)
    # 10,000 values of 2 bytes for each of 100 tokens, at 100 GB/s.
    assert told.parts["cache"] == pytest.approx(20e-6)
    assert told.value == pytest.approx(1 / 0.01002)


def test_two_nodes_split_by_tensors_read_half_each_and_sum_up_twice_a_layer():
    told = speed(2)

    assert told.parts["weights"] == pytest.approx(0.005)
    # 21 sums of a ring of two: two messages of 50 us one after the other.
    assert told.parts["latency"] == pytest.approx(21 * 100e-6)
    # 2000 bytes each, once out and once back in halves, at 1 GB/s.
    assert told.parts["transfer"] == pytest.approx(21 * 2e-6)


def test_a_pipeline_reads_everything_one_node_after_the_other():
    told = speed(4, engine="llama.cpp", parallelism="pipeline")

    assert told.parts["weights"] == pytest.approx(0.010)
    assert told.parts["latency"] == pytest.approx(3 * 100e-6)
    # A head without a GPU gives its share to an RPC server too.
    alone = speed(4, engine="llama.cpp", parallelism="pipeline", platform=replace(NODE, kind="cpu"))
    assert alone.parts["latency"] == pytest.approx(4 * 100e-6)


def test_a_pipeline_over_unlike_nodes_is_cut_by_their_memory():
    fast = replace(NODE, name="fast", bandwidth_gbs=300, memory_gib=192)
    told = predict([NODE, fast], DENSE, Strategy("llama.cpp", "pipeline"), LINK, constants=PERFECT)

    assert told.parts["weights"] == pytest.approx(0.25 * 0.010 + 0.75 * 0.010 / 3)


def test_a_token_reads_its_own_experts_and_a_batch_reads_more_of_them():
    assert speed(1, MIXTURE).parts["weights"] == pytest.approx((0.2 + 0.8 * 2 / 8) / 100)
    # Two tokens leave (3/4)^2 of the experts alone, and are two tokens.
    two = speed(1, MIXTURE, batch=2, constants=replace(PERFECT, compute=inf))
    assert two.parts["weights"] == pytest.approx((0.2 + 0.8 * (1 - 0.75**2)) / 100 / 2)


def test_a_state_is_read_and_written_in_32_bits_by_each_sequence_however_deep():
    hybrid = replace(DENSE, linear_layers=5, state_width=1e7)
    told = speed(1, hybrid, batch=2, depth=1000, constants=replace(PERFECT, compute=inf))
    deeper = speed(1, hybrid, batch=2, depth=2000, constants=replace(PERFECT, compute=inf))

    assert told.parts["weights"] == pytest.approx(0.010 / 2 + 1e7 * 8 / 100e9)
    assert deeper.parts["weights"] == told.parts["weights"]


def test_guessed_tokens_cost_a_wider_step_and_count_when_they_are_kept():
    plain = speed(1, batch=1)
    guessing = speed(1, drafts=3, acceptance=0.5, constants=replace(PERFECT, compute=inf))

    # The same weights serve 1 + 3/2 tokens; each guess read a layer and no output matrix.
    assert guessing.parts["weights"] == pytest.approx(plain.parts["weights"] * 1.3 / 2.5)


def test_the_hosts_time_is_paid_for_each_layer_hop_and_sum():
    constants = replace(PERFECT, layer_us=100, hop_us=5000, sync_us=50)

    tensor = speed(2, constants=constants)
    assert tensor.parts["dispatch"] == pytest.approx(10 * 100e-6)
    assert tensor.parts["sync"] == pytest.approx(21 * 50e-6)
    pipeline = speed(3, constants=constants, engine="llama.cpp", parallelism="pipeline")
    assert pipeline.parts["hops"] == pytest.approx(2 * 5e-3)


def test_where_the_host_needs_4_ms_a_sum_a_faster_link_changes_nothing():
    """The pair whose all-reduce fell from 286 to 100 us and that got no faster."""
    slow = replace(PERFECT, sync_us=4000)
    before = speed(2, link=replace(LINK, rtt_us=286), constants=slow)
    after = speed(2, link=replace(LINK, rtt_us=100), constants=slow)

    assert after.value / before.value < 1.05


def prompt(model=DENSE, constants=PERFECT, nodes=1, platform=NODE, **strategy) -> Prediction:
    strategy.setdefault("n_prompt", 512)
    strategy.setdefault("engine", "llama.cpp")
    strategy.setdefault("parallelism", "pipeline" if nodes > 1 else "single")
    machines = [platform] * nodes
    return predict(
        machines, model, Strategy(**strategy), LINK, metric="prompt", constants=constants
    )


def test_a_prompt_is_bound_by_compute_which_hides_the_reading_of_weights():
    told = prompt()

    assert told.parts["compute"] == pytest.approx(2 * 1e9 / 10e12)
    assert told.parts["weights"] == 0
    # 10 ms of reading for all 512 tokens, 2 ms of computing meanwhile: the longer one has the name.
    fast = prompt(constants=replace(PERFECT, compute=51.2))
    assert fast.parts["weights"] == pytest.approx(0.010 / 512)
    assert fast.parts["compute"] == 0
    assert fast.parts["compute"] + fast.parts["weights"] == pytest.approx(0.010 / 512)


def test_a_prompts_attention_is_computed_at_a_speed_of_its_own():
    near, far = prompt(), prompt(depth=10_000, constants=replace(PERFECT, attention=0.5))

    # Each token looks at half of the prompt: a product with 8 x 128 keys and one with the values.
    assert near.parts["attention"] == pytest.approx(4 * 10 * 8 * 128 * 256 / 10e12)
    assert far.parts["attention"] == pytest.approx(
        2 * near.parts["attention"] * (10_000 + 256) / 256
    )
    assert far.parts["compute"] == near.parts["compute"]


def test_only_the_last_token_of_a_prompt_asks_for_an_answer():
    wordy = replace(DENSE, parameters=1.5e9, vocabulary=500_000)

    # Half a billion weights of the output matrix take no part.
    assert prompt(wordy).parts["compute"] == pytest.approx(prompt().parts["compute"])
    assert speed(1, wordy).parts["weights"] == pytest.approx(0.015)


def test_the_last_tile_of_each_experts_tokens_is_half_empty():
    # 512 tokens ask 2 of 8 experts each, 128 an expert; half of a tile of 128, or of 32, is empty.
    for kind, more in (("amd", 64), ("nvidia", 64), ("apple", 16), ("cpu", 0)):
        told = prompt(MIXTURE, platform=replace(NODE, kind=kind))
        weights = 2e8 + 2e8 * (1 + more / 128)
        assert told.parts["compute"] == pytest.approx(2 * weights / 10e12)
    # A tile is no wider than the chunk: 16 tokens of a short prompt, 4 an expert.
    short = prompt(MIXTURE, n_prompt=16, platform=replace(NODE, bandwidth_gbs=1e6))
    touched = MIXTURE.share(16)
    assert short.parts["compute"] == pytest.approx(2 * (4e8 + 8e8 * touched * 8 / 16) / 10e12)


def test_a_prompt_reads_and_writes_what_its_kernels_hand_on():
    # 4 bytes, 1000 values, 10 layers; 20 times and 12 times for each of two experts.
    assert prompt().parts["activations"] == pytest.approx(4 * 1000 * 10 * 44 / 100e9)
    assert prompt(MIXTURE).parts["activations"] == prompt().parts["activations"]
    assert prompt(engine="vllm").parts["activations"] == prompt().parts["activations"] / 2
    assert "activations" not in {k for k, v in speed(1).parts.items() if v}


def test_llama_cpps_client_sends_a_server_activations_and_a_mask_and_fetches_what_comes_out():
    told, other = prompt(nodes=3), prompt(nodes=3, engine="vllm")

    # 2 x 4000 bytes of a token and its mask over 256 tokens, at 1 GB/s; the lab's count is this.
    assert told.parts["transfer"] == pytest.approx(2 * (2 * 4000 + 2 * 256) / 1e9)
    assert other.parts["transfer"] == pytest.approx(2 * 2000 / 1e9)
    # A pipeline of chunks does not overlap: two nodes are no faster than one.
    assert prompt(nodes=2, n_prompt=4096).parts["compute"] == pytest.approx(
        prompt(n_prompt=4096).parts["compute"]
    )


def test_serving_has_the_prompts_time_in_it():
    strategy = Strategy("llama.cpp", n_prompt=512, n_gen=128)
    decode, prompt, serve = (
        predict([NODE], DENSE, strategy, metric=metric, constants=PERFECT)
        for metric in ("decode", "prompt", "serve")
    )

    assert 128 / serve.value == pytest.approx(128 / decode.value + 512 / prompt.value)


def test_parts_add_up_and_the_interval_is_around_the_value():
    told = speed(2, constants=replace(PERFECT, layer_us=70, sync_us=40))

    assert sum(told.parts.values()) == pytest.approx(1 / told.value)
    assert told.low < told.value < told.high


def test_the_less_a_constant_is_known_the_wider_the_interval():
    known = speed(1)
    unknown = speed(1, constants=replace(PERFECT, deviations=(0.5, 0, 0, 0, 0, 0, 0)))

    assert unknown.value == known.value
    assert unknown.high / unknown.low > known.high / known.low


def test_a_small_part_that_is_hardly_known_can_cost_much_and_never_save_much():
    told = speed(
        2,
        constants=replace(
            PERFECT, sync_us=20, deviations=(0, 0, 0, 0, 0, 3, 0), spreads=spreads(decode=0)
        ),
    )

    assert told.parts["sync"] * told.value < 0.1
    assert told.low < 0.4 * told.value
    assert told.value < told.high < 1.1 * told.value


def test_a_prompts_interval_has_the_spread_of_prompts():
    known = replace(PERFECT, spreads=spreads(prompt=0.3))
    decode, prompt = (
        predict([NODE], DENSE, Strategy("vllm", n_prompt=512), metric=metric, constants=known)
        for metric in ("decode", "prompt")
    )

    assert decode.high / decode.value == pytest.approx(exp(1.2816 * 0.1))
    assert prompt.high / prompt.value == pytest.approx(exp(1.2816 * 0.3))


def test_an_interval_is_wider_for_a_chip_and_for_a_model_that_had_no_part_in_the_fit():
    parts = Spread(source=0.3, chip=0.4, model=1.2)
    known = replace(
        PERFECT,
        spreads=Spreads(parts, parts, parts, parts),
        chips=frozenset({NODE.chip}),
        models=frozenset({DENSE.name}),
    )

    def deviation(**new):
        told = speed(1, constants=replace(known, **new))
        return log(told.high / told.value) / 1.2816

    nothing = frozenset()
    assert deviation() == pytest.approx(0.3)
    assert deviation(chips=nothing) == pytest.approx(0.5)
    assert deviation(chips=nothing, models=nothing) == pytest.approx(1.3)
    assert deviation(chips=frozenset({"gfx1"})) == pytest.approx(0.5)


def test_machines_with_one_gpu_have_one_chip():
    strix, spark = (
        [platform_facts(load_platform(name)).chip for name in names]
        for names in (("framework-desktop", "minisforum-ms-s1-max"), ("dgx-spark",))
    )

    assert strix == ["gfx1151", "gfx1151"]
    assert spark == ["dgx-spark"]


NODES = st.sampled_from([2, 3, 4, 8])
FACTOR = st.floats(1, 100)
WAYS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(["llama.cpp", "vllm", "mlx", "distributed-llama"]),
        "parallelism": st.sampled_from(["pipeline", "tensor"]),
        "batch": st.integers(1, 64),
        "depth": st.integers(0, 100_000),
    }
)
MODELS = st.sampled_from([DENSE, MIXTURE])


@given(nodes=NODES, strategy=WAYS, model=MODELS, factor=FACTOR)
def test_more_memory_bandwidth_is_never_slower(nodes, strategy, model, factor):
    faster = replace(NODE, bandwidth_gbs=NODE.bandwidth_gbs * factor)

    assert (
        speed(nodes, model, platform=faster, **strategy).value
        >= speed(nodes, model, **strategy).value
    )


@given(nodes=NODES, strategy=WAYS, model=MODELS, factor=FACTOR)
def test_more_latency_is_never_faster(nodes, strategy, model, factor):
    longer = replace(LINK, rtt_us=LINK.rtt_us * factor)

    assert (
        speed(nodes, model, link=longer, **strategy).value <= speed(nodes, model, **strategy).value
    )


@given(nodes=NODES, strategy=WAYS, model=MODELS, factor=FACTOR)
def test_a_wider_link_is_never_slower(nodes, strategy, model, factor):
    wider = replace(LINK, bandwidth_gbps=LINK.bandwidth_gbps * factor)

    assert (
        speed(nodes, model, link=wider, **strategy).value >= speed(nodes, model, **strategy).value
    )


@given(strategy=WAYS, model=MODELS, depth=st.integers(1, 100_000))
def test_a_longer_context_is_never_faster(strategy, model, depth):
    deeper = strategy | {"depth": strategy["depth"] + depth}

    assert speed(2, model, **deeper).value <= speed(2, model, **strategy).value


@given(nodes=NODES, layer_us=st.floats(0, 1000))
def test_a_perfect_link_leaves_a_share_of_the_weights_and_the_dispatch(nodes, layer_us):
    perfect = FabricFacts("roce", "rdma", rtt_us=0, bandwidth_gbps=inf)
    constants = replace(PERFECT, layer_us=layer_us)
    told = speed(nodes, link=perfect, constants=constants, n_gen=1)

    rest = told.parts["cache"]
    assert 1 / told.value == pytest.approx(0.010 / nodes + 10 * layer_us / 1e6 + rest)


@settings(max_examples=50)
@given(nodes=NODES, strategy=WAYS, kind=st.sampled_from(["amd", "nvidia", "apple", "cpu"]))
def test_shipped_constants_give_finite_speeds_for_every_way(nodes, strategy, kind):
    told = speed(nodes, platform=replace(NODE, kind=kind), constants=None, **strategy)

    assert 0 < told.low < told.value < told.high < inf


def test_sums_over_a_link_follow_the_engines_algorithm():
    def latency(engine, nodes, kind="ethernet", **strategy):
        link = FabricFacts(kind, "tcp", 100, 8)
        return exchange(Strategy(engine, "tensor", **strategy), nodes, nodes, link, 0)[0] * 1e6

    assert latency("mlx", 4) == pytest.approx(2 * 3 * 50)  # ring
    assert latency("vllm", 4) == pytest.approx(2 * 2 * 50)  # tree
    assert latency("mlx", 4, "thunderbolt5-rdma") == pytest.approx(50)  # all to all at once
    assert latency("distributed-llama", 4) == pytest.approx(50)
    assert latency("distributed-llama", 4, version="v0.16.5") == pytest.approx(50)
    # Out and back, in turn.
    assert latency("distributed-llama", 4, version="0.10.6") == pytest.approx(3 * 2 * 100)
    assert latency("llama.cpp", 2) == pytest.approx(200)  # as seen in the lab
    assert latency("llama.cpp", 4) == pytest.approx(800)
    assert latency("llama.cpp", 4, collectives="rccl") == latency("vllm", 4)


@given(nodes=st.integers(2, 16), size=st.floats(1, 1e8))
def test_nccl_takes_a_tree_for_small_sums_and_a_ring_for_large_ones(nodes, size):
    def seconds(engine, size):
        strategy, link = Strategy(engine, "tensor"), FabricFacts("roce", "rdma", 100, 8)
        return sum(exchange(strategy, nodes, nodes, link, size))

    assert seconds("vllm", size) <= seconds("mlx", size) * (1 + 1e-9)
    assert seconds("vllm", 1e9) == pytest.approx(seconds("mlx", 1e9))


def test_a_collective_takes_what_was_published_of_it():
    """RCCL's sum of 20 KiB over four nodes by RoCE, no part of any fit: 85.3 us (p0823)."""
    link = fabric_facts("roce", "rdma", 25)
    known = choose("vllm", "amd").sync_us

    told = known + 1e6 * sum(exchange(Strategy("vllm", "tensor"), 4, 4, link, 20 * 1024))
    assert told == pytest.approx(85.3, rel=0.25)


def test_llama_cpps_host_acts_in_each_round_trip_of_a_sum_and_once_for_a_collective():
    slow = replace(PERFECT, sync_us=300)

    def sums(nodes, kind="cpu", **strategy):
        node = replace(NODE, kind=kind)
        told = speed(
            nodes,
            platform=node,
            constants=slow,
            engine="llama.cpp",
            parallelism="tensor",
            **strategy,
        )
        return told.parts["sync"] / (21 * 300e-6)

    assert [sums(2), sums(4)] == [pytest.approx(2), pytest.approx(8)]  # as counted in the lab
    assert [sums(2, "amd"), sums(4, "amd")] == [pytest.approx(1), pytest.approx(6)]
    assert sums(4, collectives="rccl") == pytest.approx(1)


def test_what_is_not_known_of_a_link_is_assumed_and_noted():
    link = fabric_facts("thunderbolt-net", "tcp")
    told = speed(2, link=link)

    assert link.rtt_us == 240
    assert any("thunderbolt-net by tcp: 240 us a round trip" in said for said in told.assumptions)
    known = fabric_facts("thunderbolt-net", "tcp", rtt_us=286, bandwidth_gbps=9)
    assert (known.rtt_us, known.assumptions) == (286, ())


def test_a_nominal_bandwidth_is_taken_for_less_and_noted():
    facts = platform_facts(load_platform("mac-studio-m3-ultra"))

    assert facts.bandwidth_gbs == pytest.approx(0.86 * 819)
    assert "none was measured" in facts.assumptions[0]
    assert platform_facts(load_platform("framework-desktop")).assumptions == ()


def test_every_platform_has_facts_or_says_what_it_lacks():
    for name in platform_names():
        document = load_platform(name)
        if {"memory_bandwidth_gbs", "memory_bandwidth_nominal_gbs"} & set(document):
            assert platform_facts(document).bandwidth_gbs > 0
        else:
            with pytest.raises(InputError, match=f"'{name}' has no memory bandwidth; add"):
                platform_facts(document)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: replace(LINK, rtt_us=-7), "-7 us; expected 0 or more"),
        (lambda: replace(LINK, bandwidth_gbps=0), "0 Gbit/s; expected more than 0"),
        (lambda: replace(NODE, bandwidth_gbs=-1), "memory bandwidth of 'box' is -1"),
        (lambda: replace(MIXTURE, experts_used=9), "uses 9 of 8 experts"),
        (lambda: Strategy("vllm", "rows"), "'rows' is not one of single, pipeline, tensor"),
        (lambda: Strategy("vllm", batch=0), "Batch 0"),
        (lambda: Strategy("vllm", acceptance=2), "Acceptance 2 is no share"),
        (lambda: speed(1, parallelism="tensor"), "1 nodes and parallelism 'tensor'"),
        (lambda: speed(2, parallelism="single"), "2 nodes and parallelism 'single'"),
        (lambda: speed(2, link=None), "2 nodes and no fabric"),
        (lambda: speed(1, constants=None, engine="foo"), "Engine 'foo' has no constants"),
        (lambda: fabric_facts("roce", "smoke"), "Nothing is known of 'roce' by 'smoke'"),
        (lambda: predict([NODE], DENSE, Strategy("vllm"), metric="prompt"), "n_prompt 0"),
        (lambda: predict([], DENSE, Strategy("vllm")), "No nodes"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(InputError) as refused:
        make()
    assert sentence in refused.value.message


def test_vllm_across_amd_nodes_starts_kernels_one_by_one_by_default():
    def of(kind, graphs=None):
        return family(Strategy("vllm", "tensor", graphs=graphs), kind)

    assert of("amd") == "vllm-eager"
    assert of("amd", graphs=True) == "vllm"
    assert of("nvidia") == "vllm"
    assert family(Strategy("exo", "tensor"), "apple") == "mlx"


def test_shipped_constants_are_physical_and_have_their_uncertainty():
    for engine, kinds in load().items():
        for kind, constants in kinds.items():
            assert constants is choose(engine, kind)
            assert all(getattr(constants, name) > 0 for name in NAMES)
            assert constants.weights * 0.86 < 1
            assert constants.compute < 1
            assert len(constants.deviations) == len(NAMES)
            for metric, nodes in (("decode", 1), ("serve", 2), ("prompt", 1), ("prompt", 2)):
                spread = constants.spreads.of(metric, nodes)
                known, new = (
                    spread.deviation(new_chip=is_new, new_model=is_new, thin=is_new)
                    for is_new in (False, True)
                )
                assert 0 < known <= new < 1.5
            assert all(kinds[other].chips == constants.chips for other in kinds)


def test_an_engine_without_numbers_on_a_device_is_noted_as_such():
    told = speed(2, platform=replace(NODE, kind="nvidia"), constants=None, engine="mlx")

    assert "mlx on nvidia: no published numbers, so constants of others" in told.assumptions
    assert not any("mlx" in said for said in speed(2, constants=None, engine="vllm").assumptions)


# sweeps/lab/delays.yaml in the lab, two quiet cores: tok/s of decoding by the round trip in us.
LAB_ALONE = 554
LAB = {
    ("pipeline", 2): {82: 254, 384: 183, 580: 178, 1048: 140},
    ("pipeline", 4): {82: 185, 333: 170, 555: 143, 1070: 102},
    ("tensor", 2): {84: 66.6, 444: 30.9, 556: 24.0, 1050: 23.7},
    ("tensor", 4): {80: 16.7, 352: 8.80, 557: 7.04, 1075: 5.67},
}


@pytest.mark.parametrize(("fitted", "off"), [(2, 0.154), (4, 0.136)])
def test_a_fit_of_the_lab_at_one_delay_predicts_other_nodes_and_delays(fitted, off):
    """One constant for each way to split, from the shortest round trip on so many nodes."""
    tiny = replace(DENSE, layers=8, cache_width=0)
    node = replace(NODE, kind="cpu", bandwidth_gbs=LAB_ALONE)
    assert predict([node], tiny, Strategy("llama.cpp"), constants=PERFECT).value == pytest.approx(
        554
    )
    errors = []
    for split, name in (("pipeline", "hop_us"), ("tensor", "sync_us")):

        def told(nodes, rtt, constants, split=split):
            strategy, link = Strategy("llama.cpp", split), FabricFacts("ethernet", "tcp", rtt, 100)
            return predict([node] * nodes, tiny, strategy, link, constants=constants)

        rtt = min(LAB[split, fitted])
        free = told(fitted, rtt, PERFECT)
        counts = told(fitted, rtt, replace(PERFECT, **{name: 1e6})).parts
        missing = 1 / LAB[split, fitted][rtt] - 1 / free.value
        known = replace(PERFECT, **{name: 1e6 * missing / (counts["hops"] + counts["sync"])})
        errors += [
            abs(told(nodes, trip, known).value / measured - 1)
            for nodes in (2, 4)
            for trip, measured in LAB[split, nodes].items()
            if (nodes, trip) != (fitted, rtt)
        ]

    assert median(errors) == pytest.approx(off, abs=0.005)
    assert median(errors) <= 0.20


@pytest.mark.repository
def test_the_example_of_the_documentation_prints_what_it_says(capsys):
    page = (Path("docs/model.md")).read_text()
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})  # noqa: S102

    assert f"prints `{capsys.readouterr().out.strip()}`" in page
