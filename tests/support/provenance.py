"""Where the texts come from on which readers of foreign programs are tested.

A text is what a program printed, a fixture that tools/fixtures makes again, or it has a comment
right above it (or above its statement) that says why it is not:

    # hand-made: WHY the program cannot print it here (form: WHERE its form is documented)
    # no output: WHAT it is instead, such as an input of ours or a text damaged on purpose

`python tests/support/provenance.py` counts them.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TESTS = (Path("tests/unit"), Path("tests/support"))
# The parts of the driver that read what programs, kernels and machines say.
READERS = re.compile(
    r"nixwulf\.(?:nodes\.(?:container|counters|facts|hardware|link|macos|power)|ops\.(?:deploy\.machine"
    r"|recover)|outputs|plugins\.(?:gates|meters|runtime\.(?:memory|mpi|nccl|openai_stream"
    r"|request_load)|(?:benchmarks|engines)\.(?!all_|find\b))|results\.(?:importing|power)"
    r"|sweep\.(?:power|transport))"
)
# Lines of files that say their path first, as `grep -H ''` prints them, and JSON.
_ALONE = re.compile(r"(?:/sys|/proc|/dev)/[^:\s]+:\S|\{\s*\"")
_SENTENCE = 15
_FEW_KEYS = 2
MARK = re.compile(r"# (?P<kind>hand-made|no output): (?P<words>.+)")
FORM = re.compile(r"\(form: .+\)$")


@dataclass(frozen=True)
class Text:
    """A text in a test module that could be a program's, and the comment above it, if any."""

    module: str
    line: int
    value: str
    kind: str = ""
    words: str = ""

    def __str__(self):
        return f"{self.module}:{self.line}: {self.words or repr(self.value[:70])}"


def sources():
    """The test modules and their helpers, by name."""
    return {path.stem: path for tests in TESTS for path in sorted(tests.rglob("*.py"))}


def modules():
    """The test modules that import a reader, and the helpers that they import; by name."""
    trees = {name: ast.parse(path.read_text()) for name, path in sources().items()}
    imported = {name: set(_imports(tree)) for name, tree in trees.items()}
    chosen = {name for name, names in imported.items() if any(map(READERS.match, names))}
    chosen |= {helper for name in chosen for helper in imported[name] & trees.keys()}
    return {name: trees[name] for name in sorted(chosen)}


def texts():
    """All texts that could be a program's, with what is said of them."""
    return [text for name, tree in modules().items() for text in texts_of(name, tree)]


def texts_of(name, tree, source=None):
    comments = _comments(source or sources()[name].read_text())
    found = []
    strings = [(node, starts, _value(node)) for node, starts in _strings(tree, ())]
    for node, starts, value in (*strings, *_documents(tree)):
        if not _printed(value):
            continue
        words = next((comments[line] for line in (node.lineno, *starts) if line in comments), "")
        mark = MARK.match(words)
        found.append(Text(name, node.lineno, value, *(mark["kind"], mark["words"]) if mark else ()))
    return found


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _comments(source):
    """The comment that ends right above a line, joined, by the number of that line."""
    above, found = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            above[token.start[0]] = token.string
    for line, words in above.items():
        before = found.pop(line, "")
        starts = MARK.match(words) or not before
        found[line + 1] = words if starts else f"{before} {words.removeprefix('# ')}"
    return found


def _strings(node, starts):
    """Strings below a node but docstrings, each with the lines where what holds it begins."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    ):
        yield node, starts
        return
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                inside = _begins(child, field, starts)
                yield from _strings(child, inside)


def _documents(tree):
    """JSON that is written as Python: what a module's own name is given, with keys inside keys."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            found = [node for node in ast.walk(statement.value) if isinstance(node, ast.Dict)]
            keys = [
                key.value for each in found for key in each.keys if isinstance(key, ast.Constant)
            ]
            if len([key for key in keys if isinstance(key, str) and key.islower()]) > _FEW_KEYS:
                yield statement, (), '{"' + "\n".join(map(str, keys))


def _begins(child, field, starts):
    if isinstance(child, ast.FunctionDef | ast.ClassDef):
        return ()  # a comment above a whole function would hide what is added to it later
    if isinstance(child, ast.stmt) or field == "decorator_list":
        return (child.lineno,)
    return (*starts, child.lineno) if isinstance(child, ast.Tuple) else starts


def _value(node):
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else node.value.decode("latin-1")
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def _printed(text):
    several = "\n" in text.strip("\r\n")
    return several or (text.endswith("\n") and len(text) > _SENTENCE) or bool(_ALONE.match(text))


if __name__ == "__main__":
    fixtures = sum(path.is_file() for path in Path("tests/fixtures").rglob("*")) - 1
    kinds = Counter(text.kind or "neither" for text in texts())
    print(f"fixtures: {fixtures}", *(f"{kind}: {count}" for kind, count in kinds.items()), sep="\n")
