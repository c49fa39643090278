"""The layout of the driver: what tools/house.py measures is kept where it is reached."""

from pathlib import Path

import house

# Still above what they are to become.
OPEN = {"lines of Python", "files of it"}


def test_the_figures_of_the_layout_are_within_their_limits():
    above = {figure.name: figure for figure in house.figures() if figure.value > figure.most}
    assert above.keys() <= OPEN, above


def test_folders_of_unit_tests_are_packages_of_the_driver():
    unit = Path("tests/unit")
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    packages = {path.parent.relative_to(house.PACKAGE) for path in house.PACKAGE.rglob("*.py")}
    assert folders - packages == {Path("repository")}


def test_an_engine_is_found_where_a_module_matches_it_by_name():
    texts = {
        "plugins/engines/vllm.py": '    name = "vllm"\n',
        "perf/work.py": 'def f(engine):\n    """vllm"""\n    return engine == "vllm"\n',
        "outputs/vllm.py": 'ENGINE = "vllm"\n',
        "core/text.py": '"""vllm"""\n',
    }
    assert house.naming_engines(texts) == {"perf/work.py": ["vllm"]}


def test_the_output_of_an_engine_names_the_engine_that_it_declares_and_no_other():
    engine = {"plugins/engines/a.py": '    name = "vllm"\n    name = "mlx"\n'}
    other = 'ENGINE = "mlx"\n\nwrong = "vllm"\n'
    texts = {**engine, "outputs/own.py": 'ENGINE = "vllm"\n', "outputs/other.py": other}
    assert house.naming_engines(texts) == {"outputs/other.py": ["vllm"]}
    assert house.naming_engines({**engine, "perf/own.py": other}) == {
        "perf/own.py": ["mlx", "vllm"]
    }


def test_a_name_of_two_public_classes_is_found():
    texts = {
        "a.py": "class Row: ...\nclass _Own: ...\n",
        "b.py": "class Row: ...\nclass _Own: ...\n",
    }
    assert house.shared_names(texts) == {"Row": ["a.py", "b.py"]}
