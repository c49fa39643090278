"""Models got from a local server with a hub's endpoints, from a URL and from a path."""

import hashlib
import os
import random
import subprocess
import sys

import pytest

from hub_server import COMMIT, Hub, serving
from nixwulf.ops.models import store

DATA = random.Random(0).randbytes(3_000_000)  # noqa: S311
FILES = {"Q4_K_M/tiny-Q4_K_M.gguf": DATA, "tiny-Q8_0.gguf": DATA[::-1], "README.md": b"#"}
FOLDER = {
    "config.json": b"{}",
    "model-1.safetensors": DATA,
    "pytorch_model.bin": DATA,
    "README.md": b"#",
    "original/consolidated.safetensors": DATA,
}


@pytest.fixture
def hub():
    with serving(Hub(dict(FILES))) as found:
        yield found


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "nixwulf" / "models"


@pytest.fixture
def get(hub, tmp_path):
    """The command in a process of its own: the library reads its variables when it is imported."""

    def run(*words):
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        argv = [sys.executable, "-c", "from nixwulf.cli.main import main; main()", "models", "get"]
        return subprocess.run(
            [*argv, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def test_a_file_of_a_hub_is_kept_with_its_commit_and_sha256(get, folder):
    done = get("org/name", "--only", "*Q4_K_M*")
    assert done.returncode == 0, done.stderr
    sha256 = hashlib.sha256(DATA).hexdigest()
    origin = f"org/name@{COMMIT}"
    assert done.stdout == f"tiny-Q4_K_M.gguf: 2.9 MiB, sha256 {sha256}, {origin}\n"
    (model,) = store.list_models(str(folder))["models"]
    assert (model["name"], model["state"], model["sha256"]) == (
        "tiny-Q4_K_M.gguf",
        "complete",
        sha256,
    )
    assert store.Place(str(folder), "tiny-Q4_K_M.gguf").known()["origin"] == origin


def test_of_several_models_one_has_to_be_chosen(get):
    done = get("org/name")
    assert done.returncode == 2
    assert "'org/name' has 2 models; choose one with --only, such as --only" in done.stderr
    assert "no file of 'org/name' is like '*Q2*'" in get("org/name", "--only", "*Q2*").stderr


def test_of_a_folder_what_engines_read_arrives_and_other_forms_of_it_do_not(get, hub, folder):
    hub.files = dict(FOLDER)
    assert get("org/name").returncode == 0
    assert sorted(path.name for path in (folder / "name").rglob("*")) == [
        "README.md", "config.json", "model-1.safetensors",
    ]  # fmt: skip


def test_a_download_that_was_cut_goes_on_where_it_stopped(get, hub):
    hub.cut_after = 1_000_000
    done = get("org/name", "--only", "*Q8_0*")
    assert done.returncode == 1
    assert "what has arrived is kept: run the same command again" in done.stderr
    hub.refusal = None
    hub.asked.clear()
    done = get("org/name", "--only", "*Q8_0*")
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(DATA[::-1]).hexdigest() in done.stdout
    ranges = [wanted for path, wanted in hub.asked if path.endswith("Q8_0.gguf") and wanted]
    assert ranges == ["bytes=1000000-"]


def test_a_file_that_is_not_what_the_hub_says_is_removed(get, hub, folder):
    hub.lies = {"tiny-Q8_0.gguf"}
    done = get("org/name", "--only", "*Q8_0*")
    assert done.returncode == 1
    assert "'org/name/tiny-Q8_0.gguf' arrived with sha256" in done.stderr
    assert not list(folder.rglob("*.gguf"))


@pytest.mark.parametrize(
    ("refusal", "code", "words"),
    [
        ((401, "GatedRepo"), 2, "'org/name' is gated: ask for access at http"),
        ((403, "GatedRepo"), 2, "'org/name' is gated: ask for access at http"),
        ((401, "RepoNotFound"), 2, "has no 'org/name', or it is private"),
        ((404, "RepoNotFound"), 2, "has no 'org/name', or it is private"),
        ((403, ""), 1, "refuses 'org/name' with 403"),
    ],
)
def test_a_hub_that_refuses_is_a_sentence(get, hub, refusal, code, words):
    hub.refusal = refusal
    done = get("org/name")
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gated_file_of_a_repository_that_shows_its_names_is_a_sentence(get, hub):
    hub.gated = True
    done = get("org/name", "--only", "*Q8_0*")
    assert done.returncode == 2
    assert "'org/name' is gated" in done.stderr


def test_a_revision_or_name_that_is_not_there_is_a_sentence(get):
    assert "'org/name' has no revision 'v9'" in get("org/name", "--revision", "v9").stderr
    assert "'a b c' is neither a path, a URL nor ORG/REPO" in get("a b c").stderr


def test_a_url_is_resumed_and_held_against_its_sha256(get, hub, folder):
    url = f"{hub.url}/files/tiny-Q8_0.gguf"
    hub.cut_after = 1_000_000
    assert "broke off" in get(url).stderr
    hub.refusal = None
    assert "arrived with sha256" in get(url, "--sha256", "0" * 64).stderr
    done = get(url, "--sha256", hashlib.sha256(DATA[::-1]).hexdigest())
    assert done.returncode == 0, done.stderr
    assert (folder / "tiny-Q8_0.gguf").read_bytes() == DATA[::-1]
    assert ("/files/tiny-Q8_0.gguf", "bytes=1000000-") in hub.asked
    assert "is refused with 404" in get(f"{hub.url}/files/none.gguf").stderr
    assert "names no file of .gguf" in get(f"{hub.url}/files/README.md").stderr


def test_a_split_model_of_a_path_is_copied_with_all_of_its_parts(get, folder, tmp_path):
    for part in (1, 2):
        (tmp_path / f"big-0000{part}-of-00002.gguf").write_bytes(DATA[:1000])
    done = get(str(tmp_path / "big-00002-of-00002.gguf"))
    assert done.stdout.startswith("big-00001-of-00002.gguf: 2.0 KiB, sha256 ")
    assert len(list(folder.glob("big-*.gguf"))) == 2
    (tmp_path / "big-00001-of-00002.gguf").unlink()
    done = get(str(tmp_path / "big-00002-of-00002.gguf"))
    assert done.returncode == 2
    assert f"'big-00001-of-00002.gguf' in '{tmp_path}' is not there" in done.stderr
    (tmp_path / "text.txt").write_text("x")
    assert "is no model" in get(str(tmp_path / "text.txt")).stderr


def test_what_is_no_file_or_no_sha256_is_refused_before_anything_is_read(get, tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    done = get(str(tmp_path / "pipe.gguf"))
    assert (done.returncode, "'pipe.gguf'" in done.stderr) == (2, True)
    assert "is no regular file" in done.stderr
    (tmp_path / "a.gguf").write_bytes(DATA[:10])
    done = get(str(tmp_path / "a.gguf"), "--sha256", "00")
    assert done.returncode == 2
    assert "--sha256: '00' is not 64 hexadecimal digits." in done.stderr


def test_where_a_url_is_from_has_its_port_and_not_its_password(get, hub, folder):
    done = get(f"{hub.url}/files/tiny-Q8_0.gguf".replace("//", "//me:secret@"))
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert store.Place(str(folder), "tiny-Q8_0.gguf").known()["origin"] == (
        f"{hub.url}/files/tiny-Q8_0.gguf"
    )


FOREIGN = [
    "x/../../../../../../../../../../../../authorized_keys",
    "../model.gguf",
    "/root/absolute.gguf",
    "a//b.gguf",
    "./a.gguf",
    "a/./b.gguf",
    "..",
    "a\\..\\..\\b.gguf",
    "C:\\b.gguf",
    "C:b.gguf",
    "nul.gguf",
    "a/COM1/b.gguf",
    "a\0.gguf",
    "a\x1b[2J.gguf",
    "a" * 300 + ".gguf",
    "a./b.gguf",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_name_of_a_hub_that_is_no_files_is_refused_before_anything_is_fetched(
    get, hub, folder, name
):
    hub.files = {"config.json": b"{}", "model.safetensors": b"x" * 64, name: b"ssh-ed25519 AAAA"}
    assert get("org/name", "--only", "*").returncode == 2
    assert not [path for path in folder.rglob("*") if path.is_file()]
    assert all("resolve" not in path for _, path in hub.asked)


def test_a_link_in_the_folder_of_models_leads_a_hubs_file_nowhere(get, hub, folder, tmp_path):
    (folder / "name").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "name" / "x").symlink_to(tmp_path / "elsewhere")
    hub.files = {"model.safetensors": b"x" * 64, "x/authorized_keys": b"ssh-ed25519 AAAA"}
    assert get("org/name").returncode == 2
    assert not list((tmp_path / "elsewhere").iterdir())
