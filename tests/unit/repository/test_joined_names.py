"""A name that comes from elsewhere becomes a path in core/names.py alone, so no other place does.

Looked at are the modules that read what others name: hubs, peers, recipes, images, plans, records.
What they join to a folder is a text of ours, goes through `join` or `inside`, or stands in OURS
with what makes it one of ours.
"""

import ast
from pathlib import Path

PACKAGE = Path("driver/nixwulf")
DOORS = [
    "cli/import_.py", "cli/records.py", "nodes/container.py", "nodes/transfer.py", "ops/models",
    "outputs", "results/importing.py", "results/publish", "results/store.py", "results/record.py",
    "sweep/recipes", "sweep/reproduce", "sweep/session.py", "plugins/engines/endpoint",
    "plugins/runtime/openai.py", "plugins/runtime/openai_stream.py", "llm/gguf.py",
    "llm/safetensors.py", "core/web.py",
]  # fmt: skip
OURS = {
    ("llm/safetensors.py", "place / f'{_WEIGHTS}.index.json'"): "of a constant",
    ("cli/import_.py", "out / 'records' / f\"{record['id']}.json\""): "pattern of the schema",
    ("results/publish/scrub.py", "folder / 'records' / f\"{record['id']}.json\""): "the same",
    ("results/publish/scrub.py", "out / self.name"): "of letters and digits of the title",
    ("results/store.py", "folder / name"): "pattern of the schema, only linked to",
    ("sweep/reproduce/conditions.py", "folder.path / entry.path"): "a file that was found there",
    ("sweep/recipes/translate.py", "_MODELS / f'{file}{engine.model_suffixes[0]}'"): (
        "text of a sweep: nodes' files are named whole, by their user"
    ),
    ("sweep/recipes/translate.py", "PurePosixPath('/') / name.removeprefix('~').lstrip('/')"): (
        "the same"
    ),
    ("ops/models/get.py", "folder_here() / SIDE / 'get' / name"): "a digest",
    ("ops/models/store.py", "Path(top) / name"): "a file that was found there",
    ("results/store.py", "Path(parent, name)"): "a file that was found there",
    ("ops/models/get.py", "path.with_name(f'{path.name}.tag.')"): "the path went through inside()",
    ("ops/models/store.py", "self.side.with_name(f'.{self.side.name}.{os.getpid()}')"): (
        "the path went through join()"
    ),
}
# Divisions of numbers, in which nothing says that they are some.
DIVISIONS = {
    ("outputs/described.py", "numbers[0] / (over or 1.0)"),
    ("outputs/vllm.py", "_MS_A_SECOND / one.times_ms['tpot']['mean']"),
    ("plugins/runtime/openai_stream.py", "steps / speed"),
    ("plugins/runtime/openai_stream.py", "count / milliseconds"),
    ("plugins/runtime/openai_stream.py", "count / largest"),
    ("plugins/runtime/openai_stream.py", "one.tokens / whole"),
    ("sweep/reproduce/conditions.py", "fabric.speed_gbps / speed"),
    ("sweep/session.py", "count / max(1, size)"),
    *(
        ("plugins/runtime/openai.py", division)
        for division in (
            "one / p_sum", "other / q_sum", "one / p_sum / (other / q_sum)", "one / mean",
        )
    ),
    *(
        ("sweep/reproduce/outcome.py", division)
        for division in (
            "facts[key] / all_of_them", "mhz / was", "new / old", "rate / rated",
            "size / was", "threads / were", "values[1] / values[0]", "was / size", "was / trip",
        )
    ),
}  # fmt: skip
# What makes an expression one of numbers: a number in it, or what only numbers come from.
ARITHMETIC = (ast.Mult, ast.Sub, ast.Add, ast.Pow)
COUNTING = {"len", "sum", "int", "float", "math.fsum", "math.sqrt"}


def modules():
    for door in DOORS:
        path = PACKAGE / door
        assert path.exists(), f"{door} is gone; name what took its place"
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def is_fixed(node):
    """Whether it is a text of ours: one that is written there, or a constant of a module."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())


def is_number(node):
    """Whether a side of a division can only be a number."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in COUNTING
    operation = isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC)
    return operation or (isinstance(node, ast.Constant) and not isinstance(node.value, str))


def joins(tree):
    """The expressions of a module that put a name which is not fixed below a folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if not is_fixed(node.right) and not is_number(node.left) and not is_number(node.right):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            last = called.rpartition(".")[2]
            several = called in {"Path", "PurePath", "PurePosixPath", "pathlib.Path"} and (
                len(node.args) > 1 or any(map(is_slashed, node.args))
            )
            joined = several or last in {"joinpath", "with_name"} or called.endswith("path.join")
            if joined and not all(map(is_fixed, node.args)):
                yield ast.unparse(node)


def is_slashed(node):
    return isinstance(node, ast.JoinedStr) and any(
        isinstance(part, ast.Constant) and "/" in part.value for part in node.values
    )


def found():
    return {
        (str(path.relative_to(PACKAGE)), join)
        for path in modules()
        for join in joins(ast.parse(path.read_text()))
    }


def test_a_name_from_elsewhere_is_joined_in_one_place():
    assert found() - OURS.keys() - DIVISIONS == set()


def test_what_is_said_to_be_ours_is_still_there():
    assert (OURS.keys() | DIVISIONS) - found() == set()


def test_joins_of_every_form_are_seen():
    forms = [
        "a / b", "a / b['n']", "a / f'{b}'", "a / 'x' / b", "a.joinpath(b)", "a.with_name(b)",
        "os.path.join(a, b)", "Path(a, b)", "Path(f'{a}/{b}')",
    ]  # fmt: skip
    assert [list(joins(ast.parse(form))) for form in forms] == [[form] for form in forms]
    assert not list(joins(ast.parse("inside(a, b); a / 'x'; a / NAME; Path(a); Path('a', 'b')")))
