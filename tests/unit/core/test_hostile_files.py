"""Files that were made to stop, fill or crash their reader: one sentence each, within a second."""

import os
import subprocess
import sys
import time

import pytest

from nixwulf.core.errors import EXIT_USAGE, InputError, NixwulfError, quoted
from nixwulf.core.files import read_json, read_text, read_toml, read_yaml

_READERS = {".toml": read_toml, ".yaml": read_yaml, ".json": read_json}
_BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 10))
_HOSTILE = {
    "aliases.yaml": _BOMB,
    "merges.yaml": "a: &a {x: 1}\nb: {<<: [*a, *a]}\n",
    "merge_without_alias.yaml": "b: {<<: {x: 1}}\n",
    "deep.yaml": "a: " + "[" * 20_000,
    "levels.yaml": "a: " + "[" * 100 + "]" * 100,
    "number_as_key.yaml": "1: 2\n",
    "bool_as_key.yaml": "on: 2\n",
    "twice.yaml": "a: 1\na: 2\n",
    "digits.yaml": f"a: {'9' * 6000}\n",
    "hexadecimal.yaml": f"a: 0x{'f' * 6000}\n",
    "date.yaml": "a: [9999-99-99]\n",
    "sexagesimal.yaml": f"a: {'1:' * 3000}1\n",
    "sexagesimal_float.yaml": f"a: {'1:' * 3000}1.5\n",
    "infinite.yaml": "a: .inf\n",
    "empty_int.yaml": "a: !!int ''\n",
    "no_bool.yaml": "a: !!bool x\n",
    "no_time.yaml": "a: !!timestamp x\n",
    "no_map.yaml": "a: !!map x\n",
    "object.yaml": "a: !!python/object/apply:os.system [id]\n",
    "nul.yaml": "a: \0\n",
    "long.yaml": "a: b\n" * 60_000,
    "deep.toml": f"a = {'[' * 5000}",
    "tables.toml": f"a = {'{a=' * 2000}",
    "header.toml": f"[{'.'.join('a' * 5000)}]",
    "dots.toml": f"{'a.' * 60_000}a = 1",
    "quoted_dots.toml": "x = 1\n" + '"a" . ' * 60_000 + "a = 1",
    "digits.toml": f"a = {'9' * 6000}",
    "hexadecimal.toml": f"a = 0x{'f' * 6000}",
    "float.toml": f"a = 1e{'9' * 6000}",
    "long.toml": "# a comment\n" * 200_000,
    "deep.json": "[" * 1000 + "]" * 1000,
    "levels.json": "[" * 100 + "]" * 100,
    "digits.json": f"[{'9' * 6000}]",
    "many.json": "[" + "1," * (9 << 20) + "1]",
    "many_tables.json": "[" + '{"a":1},' * (2 << 20) + "1]",
    "long.json": '"' + "a" * (1 << 26) + '"',
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_file_is_refused_in_one_short_sentence(tmp_path, name):
    path = tmp_path / name
    path.write_text(_HOSTILE[name], encoding="utf-8")
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        _READERS[path.suffix](path)
    assert time.process_time() - began < 5
    assert caught.value.message.startswith(str(path))
    assert len(caught.value.message) < len(str(path)) + 200
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [9999-99-99]\n", "line 2: not YAML: '9999-99-99' is no timestamp"),
        ("a: !!timestamp x\n", "line 1: not YAML: 'x' is no timestamp"),
        ("a: !!map [x]\n", "line 1: not YAML: expected a mapping node, but found sequence"),
        ("a: !!set [x]\n", "line 1: not YAML: expected a mapping node, but found sequence"),
        ("a: 1\n[x]: 2\n", "line 2: not YAML: a key is a list or a table; it has to be text"),
        ("a:\n  {x: y}: 2\n", "line 2: not YAML: a key is a list or a table; it has to be text"),
    ],
)
def test_what_is_wrong_in_yaml_is_named_with_its_line(tmp_path, text, problem):
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert caught.value.message == f"{path}: {problem}."


# The kernel's log is a regular file, and a reader of it waits for the next message.
@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="the kernel's log is root's")
@pytest.mark.parametrize("command", ["cluster check", "import --platform lab", "explain"])
def test_a_regular_file_that_waits_for_more_is_not_waited_for(command):
    argv = [sys.executable, "-m", "nixwulf", *command.split(), "/proc/kmsg"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == EXIT_USAGE
    assert "Traceback" not in done.stderr


def test_what_is_no_regular_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo.toml")
    for path in (tmp_path / "fifo.toml", tmp_path):
        with pytest.raises(InputError):
            read_text(path)


@pytest.mark.parametrize("name", ["/dev/zero", "/" + "a" * 300, "/a\0b"])
def test_a_device_and_a_name_that_no_file_can_have_are_refused(tmp_path, name):
    with pytest.raises(InputError):
        read_text(tmp_path / name)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a \x1b[31mred\x07 word", "a \\x1b[31mred\\x07 word"),
        ("first\n  second\r\nthird\n", "first second third"),
        ("mirrored \u202e word", "mirrored \\u202e word"),
        ("half \udcff", "half \\udcff"),
        ("9 µs × 2", "9 µs × 2"),
    ],
)
def test_a_message_is_one_line_that_no_terminal_acts_on(message, shown):
    assert NixwulfError(message).format_message() == shown


def test_a_long_message_is_made_one_line_at_once():
    began = time.process_time()
    assert NixwulfError(f"a{' ' * 200_000}b").message.endswith("b")
    assert time.process_time() - began < 1


def test_a_giant_value_is_quoted_by_its_beginning():
    began = time.process_time()
    for giant in ([1] * 10_000_000, "a" * 50_000_000, [[["x"] * 999] * 999] * 999):
        assert len(quoted(giant)) < 70
    assert time.process_time() - began < 1
