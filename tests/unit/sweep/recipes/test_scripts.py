"""Scripts: each command has the values that its variables have at its line, and nothing unsure."""

import pytest


def blocks(document):
    return [document["matrix"], *document.get("include", ())]


def axis(document, name):
    return [one["parameters"].get(name, [None])[0] for one in blocks(document)]


def models(document):
    return [one["model"][0] for one in blocks(document)]


BENCH = "llama-bench -m $M -p 64\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"M=/m/one.gguf\n{BENCH}M=/m/two.gguf\n{BENCH}", ["one", "two"]),
        (f"export M=/m/one.gguf\n{BENCH}export M='/m/two.gguf'\n{BENCH}", ["one", "two"]),
        (f"D=/m\nM=$D/one.gguf\nD=/n\n{BENCH}", ["one"]),
        (f"M=/m/one.gguf && {BENCH}declare M=/m/two.gguf && {BENCH}", ["one", "two"]),
        (
            f"M=/m/one.gguf\nfor M in /m/two.gguf; do\n  {BENCH}done\nM=$M-b\n{BENCH}",
            ["two", "two.gguf-b"],
        ),
        (f"L='/m/one.gguf /m/two.gguf'\nfor M in $L; do {BENCH[:-1]}; done\n", ["one", "two"]),
        (f"for M in '/m/one.gguf' \"/m/two.gguf\"; do {BENCH[:-1]}; done\n", ["one", "two"]),
        (f"M=/m/one.gguf\nM=/m/two.gguf ls\n{BENCH}", ["one"]),
        ("export M=/m/one.gguf\nbash -c 'llama-bench -m $M'\n", ["one"]),
        ("bash -c 'M=/m/one.gguf && llama-bench -m $M'\n", ["one"]),
        ("docker run -e M=/m/one.gguf image bash -c 'llama-bench -m ${M}'\n", ["one"]),
        ('M=/m/one.gguf\nllama-bench -m "${M:-/m/other.gguf}"\n', ["one"]),
        ("M=\nllama-bench -m ${M:-/m/other.gguf}\n", ["other"]),
        ("D=/m\nllama-bench -m ${M:-$D/other.gguf}\n", ["other"]),
        (": ${M:=/m/one.gguf}\nllama-bench -m ${M:-/m/other.gguf}\n", ["one"]),
        ("B=/opt/llama-bench\n$B -m /m/one.gguf\n", ["one"]),
        ("M=/m/one.gguf\nunset M\nllama-bench -m ${M-/m/other.gguf}\n", ["other"]),
    ],
)
def test_a_variable_has_the_value_of_the_line_before(imported, text, found):
    document, _ = imported(text)
    assert models(document) == found


@pytest.mark.parametrize(
    "between",
    [
        "M=$(pick)",
        "M+=x",
        "read M",
        "read -r -p 'which? ' M",
        "if true; then\n  M=/m/two.gguf\nfi",
        "[ -n x ] && M=/m/two.gguf",
        "case $1 in\n  a) M=/m/two.gguf ;;\nesac",
        "while read M; do ls; done < list",
        "for M in *.gguf; do ls; done",
        "choose() {\n  M=/m/two.gguf\n}",
        "unset M",
        "printf -v M %s /m/two.gguf",
    ],
)
@pytest.mark.parametrize("use", ["$M", "${M}", '"$M"'])
def test_a_variable_that_only_a_shell_can_tell_stands_for_nothing(refused, between, use):
    text = f"M=/m/one.gguf\n{between}\nllama-bench -m {use}\n"
    line = text.count("\n")
    assert refused(text).startswith(f"line {line} has an expansion: 'llama-bench -m ")


def test_what_may_have_been_set_has_no_default(refused):
    text = "if x; then M=/m/two.gguf; fi\nllama-bench -m ${M:-/m/one.gguf}\n"
    assert refused(text).startswith("line 2 has an expansion")


def test_single_quotes_and_other_nodes_have_no_variable_of_the_text(refused):
    for command in ("llama-bench -m '$M'", "ssh other 'llama-bench -m $M'"):
        refused(f"M=/m/one.gguf\n{command}\n")


def test_a_value_is_the_words_that_a_shell_makes_of_it(imported):
    text = "A='--jinja  -ub 64'\nO='exps=(a|b) $x'\nllama-server -m /m/a.gguf $A -ot \"$O\"\n"
    given = imported(text)[0]["matrix"]["parameters"]
    assert given["n_ubatch"] == [64]
    assert given["arguments"] == ["--jinja -ot 'exps=(a|b) $x'"]


def test_a_variable_is_of_the_commands_between_its_export_and_its_end(imported):
    text = (
        "A=1 llama-bench -m /m/a.gguf\nllama-bench -m /m/b.gguf\nexport B=2\n"
        "llama-bench -m /m/c.gguf\nB=3\nllama-bench -m /m/d.gguf\nunset B\nC=4\n"
        "llama-bench -m /m/e.gguf\n"
    )
    document, named = imported(text)
    found = axis(document, "environment")
    assert found == [{"A": "1"}, None, {"B": "2"}, {"B": "3"}, None]
    assert "C: it is not exported, and no command uses it" in named


def test_an_exported_variable_that_stands_in_a_command_is_named(imported):
    document, named = imported("export M=/m/a.gguf N=1\nllama-bench -m $M\n")
    assert axis(document, "environment") == [{"N": "1"}]
    assert "export M: its value stands in the command" in named


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("if [ -n $A ]; then\n  {}\nelse\n  {} -b 8\nfi", 1, "a condition"),
        ("#!/bin/sh\ncase $1 in\n  a) {} ;;\n  b) {} -b 8 ;;\nesac", 2, "a condition"),
        ('if [ "$1" = a ]; then {}; else {} -b 8; fi', 1, "a condition"),
        ('[ "$1" = a ] && {}\n[ "$1" = b ] && {} -b 8', 1, "a condition"),
        ("start()\n{\n  {}\n}\n", 1, "a function"),
        ("ls\nfunction start {\n  if x; then ls; fi\n  {}\n}\nstart", 2, "a function"),
        ("while read l; do\n  {}\ndone < list", 1, "a loop"),
        ("for f in *.gguf; do\n  for g in 1 2; do {}; done\ndone", 1, "a loop"),
        ("cat > run.sh <<'END'\n{}\nEND\nbash run.sh", 1, "a here-document"),
        ("ls\nA=(-b 8)\n{} ${A[@]}", 3, "an array"),
        ('A=(-b 8)\n{} "${A[@]}"', 2, "an array"),
        ("pgrep x || {}", 1, "an alternative"),
        ("{} || {} -b 8", 1, "an alternative"),
    ],
)
def test_what_may_run_or_not_is_refused_as_what_it_is(refused, text, line, what):
    text = text.replace("{}", "llama-bench -m /m/a.gguf", 2)
    shown = text.splitlines()[line - 1].strip()
    assert refused(text).startswith(f"line {line} has {what}: {shown[:40]!r}"[:-1])


def test_beside_a_command_that_surely_runs_it_is_named(imported):
    text = (
        "if [ ! -f /m/a.gguf ]; then\n  wget https://example.org/a.gguf\n  exit 1\nfi\n"
        "if [ -n $A ]; then\n  llama-bench -m /m/b.gguf\nfi\nllama-bench -m /m/a.gguf\n"
    )
    document, named = imported(text)
    assert models(document) == ["a"]
    assert named == [
        "if ... in line 1: commands of a shell are never run here",
        "llama-bench ... in line 5: it is in a condition, and only a shell tells whether it runs",
    ]


def test_behind_the_exit_of_a_script_nothing_is_sure(imported):
    text = "llama-bench -m /m/a.gguf\nexit 0\nllama-bench -m /m/b.gguf\n"
    document, named = imported(f"#!/bin/sh\n{text}")
    assert models(document) == ["a"]
    assert any(one.startswith("llama-bench ... in line 4: it is in lines behind") for one in named)
    assert models(imported(f"$ docker exec -it box bash\n{text}")[0]) == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "If you have two of them, it's fast:\n\n{}\n\nThat's if 'done' is there.\n",
        "if you want more\n{}\nfi\n",
        "for example (it's a test):\n{}\ndone\n",
        "while it runs, look at nvtop\n{}\n",
        "time it: it's\n\n{}\n\nthat's all",
        "curl -d '{\n  \"a\": 1\n}' host\n{}\n",
        "cat > note.txt <<EOF\nit's a note\nEOF\n{}\n",
        "cd /srv; source bin/activate; {}",
        "if x; then\n  ls\nfi\n{}",
        "f() { echo; }\n{}",
    ],
)
def test_prose_and_what_starts_nothing_change_no_case(imported, text):
    document, _ = imported(text.replace("{}", "llama-bench -m /m/a.gguf -b 8"))
    assert (models(document), axis(document, "n_batch")) == (["a"], [8])


def test_a_program_that_only_answers_is_no_run(imported):
    text = "llama-bench --list-devices\nllama-bench -h\nsudo pkill -f 'vllm serve'\n{}"
    document, named = imported(text.replace("{}", "llama-bench -m /m/a.gguf"))
    assert models(document) == ["a"]
    assert len(named) == 3


@pytest.mark.slow
def test_a_text_of_many_signs_takes_no_long(imported):
    for sign in ("if\n", "for x in y; do\n", "\"'\n", "cat <<E\n", "f() {\n", "M=$M$M\n"):
        document, _ = imported(f"llama-bench -m /m/a.gguf\n{sign * 3000}")
        assert models(document)[0] == "a"
