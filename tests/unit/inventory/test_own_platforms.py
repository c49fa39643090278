"""A platform file of the user's own: where it is found, and what is said where it is wrong."""

import json

import pytest

from nixwulf.core.errors import InputError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.inventory.platforms import (
    Signs,
    load_platform,
    platform_names,
    platforms_by_chip,
    platforms_of,
    shipped_platforms,
)
from predict_command import ways

# no output: a file of a platform
FACTS = """
name = "{name}"
description = "A box"
system = "x86_64-linux"
memory_bandwidth_gbs = {{ value = 68, source = "measured" }}
recognised_by = {{ cpu = "Loongson {name}", source = "seen" }}
install = {{ method = "check", reason = "nobody tried", product = "^{name} Pro$" }}
"""


@pytest.fixture(autouse=True)
def user_folder(tmp_path, monkeypatch):
    """The user's folder of platforms; its names are known in a test alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("nixwulf.inventory.platforms._own", {})
    return tmp_path / "config" / "nixwulf" / "platforms"


def platform_file(folder, name, facts=FACTS):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(facts.format(name=name))
    return path


def cluster_file(folder, platform):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mine.toml"
    node = f'name = "a"\nssh = "a"\nplatform = {json.dumps(str(platform))}\n'
    path.write_text(f'name = "mine"\n[fabrics]\n[[nodes]]\n{node}')
    return path


def refusal(path):
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    return caught.value.message


def speed_of(path):
    asked = ("--model", "Llama-3.1-8B", "--quant", "Q4_K_M", "--engine", "llama.cpp")
    (way,) = ways(*asked, cluster=str(path))
    return way["decode"]["predicted"]


@pytest.mark.parametrize("place", ["beside", "user"])
def test_it_is_known_by_its_name_beside_the_cluster_file_and_in_the_users_folder(
    place, tmp_path, user_folder
):
    name = f"box-{place}"
    platform_file(tmp_path / "c" if place == "beside" else user_folder, name)
    path = cluster_file(tmp_path / "c", name)
    assert load_cluster(path).nodes[0].platform == name
    assert 0 < speed_of(path) < 68 / 4.5


@pytest.mark.parametrize("whole", [True, False])
def test_it_is_known_by_its_path_which_begins_at_the_cluster_file(tmp_path, whole):
    path = platform_file(tmp_path / "boxes", f"box-path-{whole}")
    given = path if whole else f"../boxes/{path.name}"
    (node,) = load_cluster(cluster_file(tmp_path / "c", given)).nodes
    assert node.platform == path.stem
    assert node.bandwidth_gbs == 68


def test_what_is_beside_the_cluster_file_goes_before_the_users_folder(tmp_path, user_folder):
    platform_file(user_folder, "box-twice", FACTS.replace("68", "34"))
    platform_file(tmp_path / "c", "box-twice")
    (node,) = load_cluster(cluster_file(tmp_path / "c", "box-twice")).nodes
    assert node.bandwidth_gbs == 68


def test_a_machine_is_recognised_as_it_and_before_what_is_shipped(tmp_path, user_folder):
    platform_file(user_folder, "box-seen", FACTS.replace("Loongson {name}", "N100"))
    assert platforms_of("box-seen Pro") == ["box-seen"]
    signs = Signs("x86_64-linux", cpu="Intel(R) N100")
    assert platforms_by_chip(signs) == ["box-seen", "intel-n"]


def test_its_name_is_known_here_and_is_no_public_word(user_folder):
    platform_file(user_folder, "box-of-anna")
    assert "box-of-anna" in platform_names()
    assert "box-of-anna" not in shipped_platforms()


def test_where_there_is_none_the_sentence_says_where_to_write_what(tmp_path, user_folder):
    said = refusal(cluster_file(tmp_path, "box-none"))
    for words in (
        f"'{tmp_path}/box-none.toml'",
        str(user_folder),
        "platform-file.md",
        "'box-none'",
    ):
        assert words in said
    said = refusal(cluster_file(tmp_path, "boxes/none.toml"))
    assert f"'{tmp_path}/boxes/none.toml'" in said
    assert "platform-file.md" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value = 68", "value = 0", "memory_bandwidth_gbs.value"),
        ('name = "{name}"', 'name = "other"', "name is 'other', expected 'box-wrong"),
        ("Loongson {name}", "Loongson (", "'Loongson (' is no regular expression"),
        ("^{name} Pro$", "[", "'[' is no regular expression"),
        ("[", "[" * 3, "not TOML"),
    ],
)
def test_what_is_wrong_in_it_is_named_with_its_path(tmp_path, old, new, words):
    name = f"box-wrong-{len(words)}"
    path = platform_file(tmp_path, name, f"{FACTS}[ports]" if old == "[" else FACTS)
    path.write_text(path.read_text().replace(old.format(name=name), new.format(name=name)))
    said = refusal(cluster_file(tmp_path, name))
    assert said.startswith(f"{path}: ")
    assert words in said


def test_two_files_of_one_name_are_refused_unless_they_say_the_same(tmp_path):
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    platform_file(one, "box-clash")
    platform_file(same, "box-clash")
    path = platform_file(other, "box-clash", FACTS.replace("68", "34"))
    load_cluster(cluster_file(one, "box-clash"))
    load_cluster(cluster_file(same, "box-clash"))
    said = refusal(cluster_file(other, "box-clash"))
    assert str(path) in said
    assert str(one / "box-clash.toml") in said


def test_the_name_of_a_shipped_one_stays_its_own(tmp_path):
    platform_file(tmp_path, "strix-halo")
    assert "strix-halo.toml'" in refusal(cluster_file(tmp_path, "strix-halo.toml"))
    (node,) = load_cluster(cluster_file(tmp_path, "strix-halo")).nodes
    assert load_platform(node.platform)["gpu"]["target"] == "gfx1151"


@pytest.mark.parametrize("given", ["x" * 300 + ".toml", "/dev/zero/a.toml", "~nobody-here/a.toml"])
def test_a_path_that_cannot_be_looked_at_is_a_sentence(tmp_path, given):
    assert ".toml" in refusal(cluster_file(tmp_path, given))


def test_what_is_no_platform_file_is_said_to_be_none(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    assert "folder.toml: " in refusal(cluster_file(tmp_path, "folder.toml"))
    said = refusal(cluster_file(tmp_path, "mine.toml"))
    assert said.startswith(f"{tmp_path}/mine.toml: ")
