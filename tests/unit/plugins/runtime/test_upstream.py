"""Each word that the driver gives to a foreign program has a row in a table, and is used."""

import ast
import dataclasses
import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch_plan import planned
from nixwulf.plugins.benchmarks.vllm_bench import arguments as vllm_bench_arguments
from nixwulf.plugins.engines import find
from nixwulf.plugins.engines import mesh_llm as mesh
from nixwulf.plugins.engines.distributed_llama import infer_argv, worker_argv
from nixwulf.plugins.engines.exo import argv as exo_argv
from nixwulf.plugins.engines.exo import network
from nixwulf.plugins.runtime import mpi, upstream
from nixwulf.plugins.runtime.upstream import Family, VersionRow

DRIVER = Path(upstream.__file__).parents[2]
# By the files that have the words: the families whose programs get them.
# no output: words of the driver
SOURCES = {
    "plugins/engines/llama_cpp/*.py": ("llama.cpp",),
    "plugins/benchmarks/llama_bench.py": ("llama.cpp",),
    "plugins/benchmarks/llama_benchy.py": ("llama-benchy",),
    "plugins/engines/vllm/__init__.py": ("vllm",),
    "plugins/engines/vllm/ray.py": ("ray",),
    "plugins/benchmarks/vllm_bench.py": ("vllm",),
    "plugins/engines/sglang/*.py": ("sglang",),
    "plugins/runtime/speculation.py": ("vllm", "sglang"),
    "plugins/engines/mlx/*.py": ("mlx", "mlx-lm", "nccl"),
    "plugins/benchmarks/mlx_lm.py": ("mlx-lm",),
    "plugins/engines/devices.py": ("mlx", "vllm", "sglang"),
    "plugins/engines/exo/*.py": ("exo",),
    "plugins/engines/mesh_llm.py": ("mesh-llm",),
    "plugins/engines/distributed_llama/*.py": ("distributed-llama",),
    "plugins/benchmarks/dllama.py": ("distributed-llama",),
    "plugins/benchmarks/serve.py": (
        "llama.cpp",
        "vllm",
        "sglang",
        "mlx-lm",
        "exo",
        "mesh-llm",
        "distributed-llama",
    ),
    "plugins/benchmarks/session.py": (
        "llama.cpp",
        "vllm",
        "mlx-lm",
        "exo",
        "mesh-llm",
        "distributed-llama",
    ),
    "plugins/runtime/openai_stream.py": (
        "llama.cpp",
        "vllm",
        "sglang",
        "mlx-lm",
        "exo",
        "mesh-llm",
        "distributed-llama",
    ),
    "plugins/runtime/openai.py": ("llama.cpp", "vllm", "sglang", "mlx-lm"),
    "plugins/runtime/nccl.py": ("nccl",),
    "plugins/benchmarks/collectives.py": ("nccl", "nccl-tests"),
    "plugins/runtime/mpi.py": ("open-mpi",),
    "plugins/benchmarks/hpl.py": ("hpl",),
    "nodes/link.py": ("iperf3", "ping"),
    "plugins/benchmarks/iperf3.py": ("iperf3",),
    "plugins/benchmarks/latency.py": ("sockperf",),
    "plugins/benchmarks/perftest.py": ("perftest",),
}
# For the shell and who serves, mkdir and rm, pip and cmake; a module of the driver; what is
# refused; what is looked for in a help and given to none; the beginning of a draft's own flags, and
# where somebody may have given one by hand; the end of a file's name.
# no output: words of the driver
OTHERS = {
    "plugins/engines/llama_cpp/__init__.py": {"--port"},
    "plugins/engines/llama_cpp/options.py": {"--spec-"},
    "plugins/engines/sglang/__init__.py": {"--speculative-"},
    "plugins/runtime/speculation.py": {"--speculative-config", "-sc"},
    "plugins/engines/llama_cpp/install.py": {"*"},
    "plugins/engines/mlx/ranks.py": {"-c"},
    "plugins/engines/devices.py": {"-c"},
    "plugins/engines/mesh_llm.py": {"/v1/models", "--join-file"},
    "plugins/engines/vllm/ray.py": {"-s"},
    "plugins/engines/distributed_llama/__init__.py": {"--version"},
    "plugins/runtime/mpi.py": {"-c", "-daemon"},
    "plugins/runtime/nccl.py": {"-c"},
}
# Not of one program: what they have in common, and what starts none. Whatever answers behind an
# endpoint is asked what it is, and what it does not know is unknown.
COMMON = {
    *(f"plugins/engines/endpoint/{name}.py" for name in ("__init__", "answers", "server")),
    "plugins/engines/__init__.py",
    "plugins/engines/kept_servers.py",
    "plugins/engines/local.py",
    "plugins/engines/serving.py",
}
COMMON |= {"plugins/benchmarks/__init__.py", "plugins/benchmarks/quality.py"}
NCCL_DATA = (DRIVER / "data/nccl.toml").read_text()
# Put together from parts, or data.
BUILT = {"open-mpi": " ".join(mpi._AS_ROOT), "nccl": NCCL_DATA}
BUILT["sglang"] = (DRIVER / "data/reserved_arguments.toml").read_text()
_FLAG = re.compile(r"--?[A-Za-z1][\w-]*")
_VARIABLE = re.compile(r"(?:CUDA|NCCL|GLOO|MLX|VLLM|RAY|HF|EXO|GGML|LLAMA|OMP|OMPI|PRTE)_\w+")
_ENDPOINT = re.compile(r"/(?:v1/|[a-z]+(?:/|$))[\w/]*")
_PATHS = ("/tmp/", "/dev/", "/proc/", "/usr/", "/sys/", "/nix/")


def words_of(path):
    """The flags, variables and endpoints among the texts of a module."""
    tree = ast.parse((DRIVER / path).read_text())
    documented = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if _has_doc(node)}
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.partition("=")[0]
            if node.value in documented or node.value.startswith(_PATHS):
                continue
            for pattern in (_FLAG, _VARIABLE, _ENDPOINT):
                words |= {text} if pattern.fullmatch(text) else set()
    return words - {"-"}


def _has_doc(node):
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


def files(pattern):
    return sorted(str(p.relative_to(DRIVER)) for p in DRIVER.glob(pattern))


@cache
def family(name):
    return next(each for each in upstream.families() if each.name == name)


def known(*names, program=None):
    rows = [row for name in names for row in family(name).rows]
    rows = [row for row in rows if not program or not row.programs or program in row.programs]
    return {part for row in rows for word in row.words for part in word.split()}


@pytest.mark.parametrize("path", [path for pattern in SOURCES for path in files(pattern)])
def test_every_word_of_a_module_is_in_the_tables_of_its_programs(path):
    names = next(names for pattern, names in SOURCES.items() if fnmatch(path, pattern))
    others = OTHERS.get(path, set())
    words = words_of(path)
    rest = {w for w in words if not any(fnmatch(w, other) for other in others)}
    assert rest - known(*names) == set()
    assert [other for other in others if not any(fnmatch(w, other) for w in words)] == []


def test_every_variable_of_nccls_data_is_in_its_table():
    words = {name for part in tomllib.loads(NCCL_DATA).values() for name in part}
    assert words - known("nccl") == set()


def test_every_engine_and_benchmark_has_a_table():
    modules = {*files("plugins/engines/**/*.py"), *files("plugins/benchmarks/*.py")} - COMMON
    assert [path for path in modules if not any(fnmatch(path, each) for each in SOURCES)] == []
    assert {name for names in SOURCES.values() for name in names} == {
        each.name for each in upstream.families()
    }


@pytest.mark.parametrize("each", upstream.families(), ids=lambda each: each.name)
def test_every_row_is_of_a_word_that_the_driver_uses(each):
    mine = [pattern for pattern, names in SOURCES.items() if each.name in names]
    text = "\n".join((DRIVER / path).read_text() for pattern in mine for path in files(pattern))
    text += BUILT.get(each.name, "")
    for row in each.rows:
        for part in (part for word in row.words for part in word.split()):
            plain = part.lstrip("-").replace("-", "_")
            assert re.search(rf"(?<![\w-]){re.escape(part)}|\"{plain}\"", text), part


def of_plan(run, *more):
    """What is started and asked for: the name of its program, and its words."""
    started = [(process.argv, process.environment) for process in run.started]
    for argv, environment in [*started, *((argv, {}) for argv in more)]:
        flags = {w.partition("=")[0] for w in argv[1:] if _FLAG.match(w) and " " not in w}
        yield argv[0].rpartition("/")[2], flags | set(environment)


# no output: parameters of a case
CHATTY = {"max_model_len": [512], "max_num_seqs": [2], "n_prompt": [16], "requests": [2]}


@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_every_word_of_a_launch_plan_of_vllm_is_its_programs(tmp_path, executor):
    matrix = {"engine": ["vllm"], "benchmark": ["vllm-bench"], "nodes": [2], "fabric": ["qsfp-a"]}
    matrix |= {"transport": ["rdma"], "parallelism": ["tensor"]}
    matrix["parameters"] = {**CHATTY, "executor": [executor]}
    # hand-made: the lines that are counted (form: tests/fixtures/ray/status-2-nodes.txt)
    answers = {"status": " 1 node_a\n 1 node_b\n"}
    places = {"vllm": "/opt/vllm", "ray": "/opt/ray"}
    run = planned(tmp_path, "dgx-spark-2", {"id": "a/b"}, matrix, answers, **places)
    find("vllm").start(run)
    find("vllm").launch(run, "vllm")
    bench = vllm_bench_arguments(run, 0, 2, "/tmp/x.json")
    seen = set()
    for program, words in of_plan(run, bench):
        names = ("vllm", "ray", "nccl")
        own = {"PYTHONFAULTHANDLER", "PYTHONUNBUFFERED"}
        assert words - known(*names, program=program) - own == set(), program
        seen.add(program)
    assert seen == ({"vllm", "ray"} if executor == "ray" else {"vllm"})


def test_every_word_of_the_launch_plans_of_other_engines_is_its_programs(tmp_path):
    pi = {"nodes": [2], "fabric": ["switch"], "transport": ["tcp"]}
    dllama = {"engine": ["distributed-llama"], "benchmark": ["dllama"], "parallelism": ["tensor"]}
    dllama |= pi | {"parameters": {"max_seq_len": [512]}}
    run = planned(
        tmp_path, "pi-cm5-4", {"path": "/m.m", "tokenizer": "/t.t"}, dllama, dllama="/o/dllama"
    )
    run.tokenizer = "/t.t"
    argvs = [worker_argv(run, run.workers[0]), infer_argv(run, "x", 9)]
    for program, words in of_plan(run, *argvs):
        assert words - known("distributed-llama", program=program) == set()
    halo = {"engine": ["mesh-llm"], "benchmark": ["serve"], "parallelism": ["pipeline"]}
    halo |= {"nodes": [2], "fabric": ["cable"], "transport": ["tcp"]}
    halo["parameters"] = {"llama_flavor": ["vulkan"], "max_vram_gb": [9]}
    run = planned(
        tmp_path, "framework-2", {"path": "/m.gguf"}, halo, **{"mesh-llm": "/opt/mesh-llm"}
    )
    for program, words in of_plan(run, mesh.argv(run, run.workers[0], "token")):
        assert words - known("mesh-llm", program=program) == set()
    exo = halo | {"engine": ["exo"], "fabric": ["office"], "parameters": {"api": ["chat"]}}
    run = planned(tmp_path, "mac-studio-4", {"id": "a/b"}, exo, exo="/opt/exo")
    helps = sorted(Path("tests/fixtures/exo").glob("*/help.txt"))
    networks = [network({"mac-a": each.read_text()}, "nixwulf-run") for each in helps]
    assert len({each.arguments for each in networks}) > 1
    for each in networks:
        assert each.environment.keys() <= known("exo")
        for program, words in of_plan(run, *(exo_argv(run, node, each) for node in run.nodes)):
            assert words - known("exo", program=program) == set()


@pytest.mark.parametrize("each", upstream.families(), ids=lambda each: each.name)
def test_rows_are_ordered_in_time_and_name_a_word_once_for_a_case(each):
    seen = set()
    for row in each.rows:
        assert not row.until or upstream.number(row.since) <= upstream.number(row.until), row
        for word in row.words:
            for program in row.programs or ("",):
                key = (word, program, *sorted(row.when.items()))
                assert key not in seen, key
                seen.add(key)


def test_the_family_of_an_engine_names_an_engine():
    of = {each.engine for each in upstream.families() if each.engine}
    assert all(find(name) for name in of)


NUMBERS = st.lists(st.integers(0, 9999), min_size=1, max_size=4)


@given(NUMBERS, NUMBERS, st.sampled_from(["", "v"]), st.sampled_from(["", "rc1", "+cu129"]))
def test_versions_are_ordered_as_their_numbers(one, other, before, after):
    written = before + ".".join(map(str, one)) + after
    number = upstream.number(written)
    width = max(len(one), len(other))
    first, second = (each + [0] * (width - len(each)) for each in (one, other))
    theirs = upstream.number(".".join(map(str, other)))
    assert (number < theirs) == (first < second)
    assert (number == theirs) == (first == second)


TOOL = Family(
    "tool",
    ("1.0", "2.0", "3.0"),
    (
        VersionRow(("--old",), "1.0", "https://x/old", ("tool",), until="4.1"),
        VersionRow(("--new",), "2.5", "https://x/new", ("tool",)),
        VersionRow(("--asked",), "9.0", "https://x/asked", ("tool",), optional=True),
        VersionRow(("TOOL_RDMA",), "3.0", "https://x/rdma", when={"transport": "rdma"}),
    ),
    "tool-engine",
    (r"tool version (\S+)",),
    "1.0",
    "run 'install tool=={wanted}'",
)


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.setattr(upstream, "families", lambda: (TOOL,))


@given(st.tuples(st.integers(1, 9), st.integers(0, 99)))
def test_a_version_is_refused_where_and_only_where_a_word_is_missing(version):
    text = "tool version {}.{}".format(*version)
    refused = upstream._problem(TOOL, text, {})
    assert (refused is not None) == (version < (2, 5) or version > (4, 1))


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            "tool version 2.4.9+cpu",
            "tool '2.4.9+cpu', and nixwulf needs 2.5 or later for '--new' of tool "
            "(https://x/new); run 'install tool==2.5'.",
        ),
        (
            "tool version 5",
            "tool '5', and nixwulf needs 4.1 or earlier for '--old' of tool (https://x/old); run "
            "'install tool==4.1'.",
        ),
        ("tool version 2.5", None),
        ("tool version 0.1.dev1+gabc", None),
        ("tool version 0.1", None),
        ("tool version unknown", None),
        ("", None),
    ],
)
@pytest.mark.usefixtures("tool")
def test_the_sentence_names_the_version_the_word_and_the_next_command(printed, sentence):
    assert upstream.problem("tool-engine", printed, {}) == sentence
    assert upstream.problem("another", printed, {}) is None


@pytest.mark.usefixtures("tool")
def test_only_a_case_that_needs_a_word_is_refused_for_it(tmp_path):
    matrix = {"engine": ["llama.cpp"], "nodes": [2], "fabric": ["cable"], "transport": ["tcp"]}
    matrix["parallelism"] = ["pipeline"]
    case = planned(tmp_path, "framework-2", {"path": "/m.gguf"}, matrix).case
    rdma = dataclasses.replace(case, transport="rdma")
    assert upstream.problem("tool-engine", "tool version 2.6", upstream.of_case(case)) is None
    found = upstream.problem("tool-engine", "tool version 2.6", upstream.of_case(rdma))
    assert "'TOOL_RDMA' (https://x/rdma)" in found


@pytest.mark.parametrize(
    ("engine", "printed", "words"),
    [
        # hand-made: no such builds are at hand, but for 0.5.0-dev, which the lab's build printed
        # (form: https://github.com/ggml-org/llama.cpp/blob/b9270/common/arg.cpp, and of the later
        # ones common/build-info.cpp.in at b10573)
        ("llama.cpp", "version: 9842 (c1c3d15)\nbuilt with cc", None),
        # hand-made: no such build is at hand
        # (form: https://github.com/ggml-org/llama.cpp/blob/b9270/common/arg.cpp)
        ("llama.cpp", "version: 6687 (3a4a4f3)\nbuilt with cc", "b6688 or later"),
        ("llama.cpp", "version: 0.7.0 (build 11669, commit 0f0f0f0)", None),
        ("llama.cpp", "version: 0.5.0-dev (build 0, commit 0c1e570)", None),
        ("llama.cpp", "version: 1 (c1c3d15)", None),
        # no output: lines of devices.py
        ("vllm", "vllm version 0.33.0\nray version 2.60.0", None),
        # no output: lines of devices.py
        ("vllm", "vllm version 0.33.0\nnvidia-nccl-cu13 version 2.28.9", None),
        ("vllm", "nvidia-nccl-cu12 version 2.2.13", "nccl '2.2.13', and nixwulf needs 2.3.7"),
        ("vllm", "vllm version 0.8.3", "needs 0.8.5 or later (the oldest that was read)"),
        ("vllm", "vllm version 0.1.dev1+g5ac2684", None),
        # no output: lines of devices.py
        ("mlx", "mlx version 0.32.4\nmlx-lm version 0.32.2", None),
        # no output: lines of devices.py
        ("mlx", "mlx version 0.32.4\nmlx-lm version 0.22.0", "'pip install mlx-lm==0.30.6'"),
        # no output: lines of devices.py
        ("exo", "exo version 0.3.70\nmlx version 0.32.4", None),
        ("exo", "exo version 0.3.0", "exo '0.3.0', and nixwulf needs 0.3.69"),
        # hand-made: clap's form, no release is at hand
        # (form: https://github.com/Mesh-LLM/mesh-llm/blob/0809252/mesh-llm/src/cli/mod.rs)
        ("mesh-llm", "mesh-llm 0.66.0", None),
        ("mesh-llm", "mesh-llm 0.64.0", "'--log-format' of mesh-llm"),
        ("distributed-llama", "", None),
    ],
)
def test_what_engines_print_is_inside_or_outside(engine, printed, words):
    found = upstream.problem(engine, printed, upstream.of_cluster(2))
    assert found is None if words is None else words in (found or "")
