"""Models got from a local server with a hub's endpoints, from a URL and from a path."""

import gzip
import hashlib
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import time

import httpx
import pytest

from hub_server import COMMIT, Hub, serving
from nixwulf.core.names import Refusal, join
from nixwulf.ops.models import get as ops_hub
from nixwulf.ops.models import store

# A GGUF from both ends, as some tests tell two files apart by their order.
DATA = b"GGUF" + random.Random(0).randbytes(2_999_992) + b"FUGG"  # noqa: S311
HEADER = b'{"w":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + DATA[:1000]
FILES = {"Q4_K_M/tiny-Q4_K_M.gguf": DATA, "tiny-Q8_0.gguf": DATA[::-1], "README.md": b"#"}
FOLDER = {
    "config.json": b"{}",
    "model-1.safetensors": WEIGHTS,
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

    def run(*words, patience_s=60, **more):
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **more,
        }
        script = f"""
import sys
from nixwulf.llm import catalog
from nixwulf.ops.models import get
get._PATIENCE_S = catalog._PATIENCE_S = {patience_s}
from nixwulf.cli.main import main
try:
    main()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("KiB:", peak.split()[1], file=sys.stderr)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, "models", "get", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        done.kib = int(done.stderr.rpartition("KiB: ")[2])
        return done

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


@pytest.mark.parametrize("source", ["org/name", "{url}/files/tiny-Q8_0.gguf"])
def test_a_part_is_not_the_whole_because_its_server_has_no_more(get, hub, folder, source):
    words = [source.format(url=hub.url), *(["--only", "*Q8_0*"] if source == "org/name" else [])]
    hub.cut_after = 1_000_000
    get(*words)
    hub.refusal = None
    nothing_left = sends(b"", status=416, Content_Range="bytes */1000000")
    hub.instead = {"tiny-Q8_0.gguf": nothing_left}
    assert get(*words).returncode == 1
    assert not (folder / "tiny-Q8_0.gguf").exists()
    hub.instead.clear()
    assert get(*words).returncode == 0
    assert (folder / "tiny-Q8_0.gguf").read_bytes() == DATA[::-1]


def test_a_file_of_the_hubs_own_protocol_has_its_bytes_too(hub, monkeypatch, tmp_path):
    import huggingface_hub

    def short(repository, name, *, revision, local_dir):
        url = f"{hub.url}/{repository}/resolve/{revision}/{name}"
        got = httpx.get(url).content
        (local_dir / name).write_bytes(got[:-1])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", short)
    monkeypatch.setattr(ops_hub, "_LARGEST_BY_HTTP", 0)
    file = ops_hub.File("tiny-Q8_0.gguf", len(DATA), None)
    with pytest.raises(ops_hub.Cut):
        ops_hub.fetch(ops_hub.Repository("org/name", COMMIT, (file,)), file, tmp_path)


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "http://[::1", "file:///etc", "hub"])
def test_a_hub_at_no_address_is_a_sentence(get, address):
    done = get("org/name", HF_ENDPOINT=address)
    assert done.returncode == 2, done.stderr
    assert repr(address) in done.stderr


def test_a_token_that_crosses_a_network_by_http_is_a_warning(get, hub):
    mirror = {"HF_ENDPOINT": "http://mirror.invalid", "HTTP_PROXY": hub.url, "NO_PROXY": ""}
    warned = "crosses the network in clear"
    assert warned in get("org/name", HF_TOKEN="hf_secret", **mirror).stderr  # noqa: S106
    assert warned not in get("org/name", **mirror).stderr
    assert warned not in get("org/name", HF_TOKEN="hf_secret").stderr  # noqa: S106


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


def test_of_a_dead_hub_the_message_says_what_to_look_at(get, hub, tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = get("org/name", HF_ENDPOINT=dead)
        other = get(f"{dead}/a.gguf")
    for one in (done, other):
        assert one.returncode == 1
        assert dead in one.stderr
        assert "network" in one.stderr
        assert "is kept" not in one.stderr
    assert "HF_ENDPOINT, which names it" in done.stderr


NAMES = [
    "x/../../../../evil.safetensors", "../evil.safetensors", "..", "a/..", "/etc/evil.safetensors",
    "{folder}/evil.safetensors", "a//b.safetensors", "a/./b.safetensors", "", ".", "a/", "a\0b",
    "a\nb", "a\x1b[2Jb", "a\u202eb", "a\\..\\evil", "C:evil", "c:/evil", "x/C:evil", "CON",
    "a.json:evil",
    "nul.safetensors", "x/aux.txt", "COM1", "lpt9.x", "com\u00b2", "con ", "x/.. /evil", "x. ",
    "...", "a" * 250, "/".join(["a" * 100] * 12), 7, None, ["x"], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_here_or_on_another_system_is_joined_to_no_folder(
    tmp_path, name
):
    name = name.format(folder=tmp_path) if name == "{folder}/evil.safetensors" else name
    with pytest.raises(Refusal):
        join(tmp_path, name)


@pytest.mark.parametrize("name", [*NAMES[:6], "a\0b", 7])
def test_a_name_of_a_hub_that_leads_elsewhere_is_refused_before_anything_is_fetched(
    get, hub, tmp_path, name
):
    name = name.format(folder=tmp_path) if name == "{folder}/evil.safetensors" else name
    listing = {**Hub(dict(FOLDER)).info()}
    listing["siblings"].append({"rfilename": name, "size": 4, "blobId": "0" * 40})
    hub.instead["/api/"] = sends(json.dumps(listing).encode())
    done = get("org/name")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path, _ in hub.asked if "/resolve/" in path] == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "evil" in path.name]


def test_a_good_name_is_joined(tmp_path):
    for name in (
        "a.gguf",
        "a/b.json",
        ".gitattributes",
        "Screenshot at 10.11.12\u202fAM.png",
        "中/文",
    ):
        assert join(tmp_path, name) == tmp_path / name
    (tmp_path / "in").symlink_to(tmp_path / "a")
    (tmp_path / "out").symlink_to("/etc")
    assert join(tmp_path, "in/b") == tmp_path / "in/b"
    for name in ("out", "out/passwd"):
        with pytest.raises(Refusal, match="leads outside"):
            join(tmp_path, name)
    assert join(tmp_path, "out", link=True) == tmp_path / "out"


@pytest.mark.parametrize("where", ["staging", "final"])
def test_a_link_below_the_folder_of_models_is_not_followed(get, hub, folder, tmp_path, where):
    outside = tmp_path / "outside"
    outside.mkdir()
    hub.files = {"config.json": b"{}", "sub/model.safetensors": b"x" * 9}
    if where == "final":
        (folder / "name").mkdir(parents=True)
        (folder / "name" / "sub").symlink_to(outside)
    else:
        hub.cut_after = 1
        get("org/name")
        hub.refusal = None
        (staging,) = (folder / store.SIDE / "get").iterdir()
        (staging / "sub").rmdir() if (staging / "sub").exists() else None
        (staging / "sub").symlink_to(outside)
    done = get("org/name")
    assert (done.returncode, list(outside.iterdir())) == (2, []), done.stderr


def test_an_index_that_names_weights_elsewhere_is_refused(get, hub, folder):
    for shard in ("../../x.safetensors", "/etc/x.safetensors", 7, [1], {}):
        index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": shard}}).encode()
        hub.files = {**FOLDER, "model.safetensors.index.json": index}
        done = get("org/name")
        assert done.returncode == 2, done.stderr
        assert not (folder / "name").exists()


INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
# hand-made: what a mirror may have under a model's name (form: the first bytes of each format)
NO_MODELS = {
    "m.gguf": (b"<html>Please log in</html>", b"", b"\0" * 4096),
    "m.m": (b"<html>",),
    "model-1.safetensors": (b"", b"<html>Please", b"\0" * 99, WEIGHTS[:-1], WEIGHTS + b"x"),
    "config.json": (b"", b"<html>", b"[]"),
    "model.safetensors.index.json": (INDEX.encode(), b"<html>", b'{"weight_map": 7}'),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_what_is_no_model_by_its_first_bytes_is_none_whoever_gave_it(get, hub, folder, name):
    for content in NO_MODELS[name]:
        rest = {} if name[0:2] == "m." else FOLDER
        hub.files = {**rest, name: content}
        for done in (get("org/name"), get("org/name")):  # the second finds nothing that waits
            assert done.returncode == 2, done.stderr
            assert repr(name) in done.stderr
            assert "another place" in done.stderr
        assert store.list_models(str(folder))["models"] == []


@pytest.mark.parametrize("content", NO_MODELS["m.gguf"])
def test_a_url_and_a_path_of_what_is_no_model_give_none(get, hub, folder, tmp_path, content):
    hub.files = {"m.gguf": content}
    (tmp_path / "m.gguf").write_bytes(content)
    folder.mkdir(parents=True)
    (folder / "in.gguf").write_bytes(content)
    for source in (f"{hub.url}/files/m.gguf", str(tmp_path / "m.gguf"), str(folder / "in.gguf")):
        done = get(source)
        assert (done.returncode, "another place" in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "m.gguf").read_bytes() == content
    assert [one["state"] for one in store.list_models(str(folder))["models"]] == ["unread"]


@pytest.mark.parametrize("part", ["m-00001-of-00003.gguf", "m-00002-of-00002.safetensors"])
def test_of_a_model_some_of_whose_parts_are_nowhere_nothing_is_fetched(get, hub, folder, part):
    hub.files = {part: WEIGHTS if part.endswith("s") else DATA}
    for source in ("org/name", *([f"{hub.url}/files/{part}"] if part.endswith("f") else [])):
        done = get(source)
        assert done.returncode == 2, done.stderr
        assert "has 1 of the" in done.stderr
        assert "another place" in done.stderr
    assert not [path for path, _ in hub.asked if "/resolve/" in path or "/files/" in path]
    assert not list(folder.glob("m-*"))


def test_files_without_a_byte_are_not_asked_for(get, hub, folder):
    hub.files = {**FOLDER, **{f"{number}/empty": b"" for number in range(50)}}
    assert get("org/name").returncode == 0
    assert len([path for path, _ in hub.asked if "/resolve/" in path]) == 3
    assert len(list((folder / "name").glob("*/empty"))) == 50


def test_tls_is_loaded_for_https_alone_and_a_file_of_it_that_is_not_there_is_named(get, hub):
    assert get("org/name", "--only", "*Q8_0*", SSL_CERT_FILE="/nonexistent").returncode == 0
    done = get("https://127.0.0.1:1/a.gguf", SSL_CERT_FILE="/nonexistent")
    assert (done.returncode, "unset SSL_CERT_FILE" in done.stderr) == (1, True), done.stderr


def test_the_next_command_has_a_name_in_it_as_a_shell_reads_it(get, hub):
    name = "$(touch x) `id`.gguf"
    hub.files = {name: DATA[:1000]}
    done = get("org/name")
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("Push it")]
    words = shlex.split(told.partition("nixwulf")[2].rstrip("'."))
    assert words == ["models", "push", name, "--cluster", "FILE"]


def sends(*pieces, status=200, pause_s=0.0, length=None, **headers):
    """An answer of some pieces, the last of them for ever where there is a pause or no length."""

    def answer(handler):
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        if length is not False:
            handler.send_header("Content-Length", str(length or sum(map(len, pieces))))
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
        while length is False or pause_s:
            handler.wfile.write(pieces[-1])
            time.sleep(pause_s)

    return answer


def drips_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.05)


def informs(handler):
    while True:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.01)


def says_nothing(handler):
    time.sleep(30)


def redirects(to, body=b"x", **more):
    return lambda handler: sends(body, status=302, Location=to(handler), **more)(handler)


def itself(handler):
    return handler.path


BOMB = gzip.compress(bytes(1 << 20)) * 300
FEW = b"[" * 4000
BOTH = {  # of any answer
    "drips headers": drips_headers,
    "informs for ever": informs,
    "says nothing": says_nothing,
    "drips": sends(b"x", length=3_000_000, pause_s=0.05),
    "ends early": sends(b"x" * 1000, length=3_000_000),
    "never ends": sends(b"x" * 65536, length=False),
    "never ends an error": sends(b"x" * 65536, length=False, status=500),
    "never ends a redirect": redirects(lambda handler: "/x", b"x" * 65536, length=False),
    "redirects to itself": redirects(itself),
    "redirects to a file": redirects(lambda handler: "file:///etc/passwd"),
    "redirects nowhere": redirects(lambda handler: "http://[:x"),
    "a bomb": sends(BOMB, Content_Encoding="gzip"),
    "a bomb that is refused": sends(BOMB, status=500, Content_Encoding="gzip"),
    "100,000 headers": sends(b"x", **{f"x{n}": "x" * 99 for n in range(100_000)}),
    "no HTTP": lambda handler: handler.wfile.write(b"\x16\x03\x01" * 999),
    "a status of 206": sends(b"x" * 3_000_000, status=206, Content_Range="bytes 9-10/*"),
    "a status of 204": sends(b"", status=204),
    "a status of 416": sends(b"", status=416, Content_Range="bytes */7"),
    "a status of 304": sends(b"", status=304),
}
QUICK = {"drips headers", "never ends", "redirects to itself", "a bomb", "a status of 206"}
LISTINGS = {
    **BOTH,
    "no JSON": sends(b"<html>"),
    "deep": sends(FEW),
    "a number": sends(b"7"),
    "nothing": sends(b"{}"),
    "files of text": sends(json.dumps({"sha": COMMIT, "siblings": "abc"}).encode()),
    "a commit that is a path": sends(json.dumps({"sha": "../..", "siblings": []}).encode()),
    "no sizes": sends(json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "a.gguf"}]}).encode()),
    "sizes of text": sends(
        json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": "9"}]}).encode()
    ),
    "sizes below 0": sends(
        json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": -9}]}).encode()
    ),
    "a size beyond all disks": sends(
        json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": 1 << 62}]}).encode()
    ),
    "a size of half a byte": sends(
        json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": 9.5}]}).encode()
    ),
    "a file that is a folder": sends(
        json.dumps({
            "sha": COMMIT, "siblings": [{"rfilename": n, "size": 9} for n in ("a", "a/b.gguf")],
        }).encode()
    ),
    "20,000 files": sends(
        json.dumps({
            "sha": COMMIT, "siblings": [{"rfilename": f"{n}", "size": 0} for n in range(20_000)],
        }).encode()
    ),
    "4 million lists": sends(b"[" + b"[]," * 4_000_000 + b"[]]"),
}  # fmt: skip
FILES_ARE = {
    **BOTH,
    "other bytes": sends(b"x" * len(DATA)),
    "another size": sends(b"x" * (len(DATA) - 1)),
    "a tag of no ASCII": sends(b"x" * len(DATA), ETag='"\xe9"'),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", LISTINGS)
def test_a_hub_whose_listing_is_none_is_a_sentence_in_time_and_memory(get, hub, folder, how):
    hub.instead["/api/"] = LISTINGS[how]
    _is_a_sentence(get("org/name", patience_s=3), folder)


@pytest.mark.slow
@pytest.mark.parametrize("how", FILES_ARE)
def test_a_hub_whose_file_is_none_is_a_sentence_in_time_and_memory(get, hub, folder, how):
    hub.instead["/resolve/"] = FILES_ARE[how]
    _is_a_sentence(get("org/name", "--only", "*Q8_0*", patience_s=3), folder)


@pytest.mark.parametrize(
    "how", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in BOTH]
)
def test_a_url_that_gives_no_file_is_a_sentence_in_time_and_memory(get, hub, folder, how):
    hub.instead["/files/"] = BOTH[how]
    sha256 = hashlib.sha256(DATA).hexdigest()
    _is_a_sentence(get(f"{hub.url}/files/a.gguf", "--sha256", sha256, patience_s=3), folder)


def _is_a_sentence(done, folder):
    assert done.returncode in {1, 2}, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(("Error: ", "org/name", "http"))
    assert done.kib < 300 * 1024
    assert not list(folder.glob("*.gguf"))
    kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert kept <= len(DATA) + 1000


def test_a_token_stays_at_the_host_that_it_is_of(get, hub):
    seen = []

    def note(handler):
        seen.append((handler.headers["Host"], handler.headers.get("Authorization")))
        sends(b"x", status=404)(handler)

    with serving(Hub(dict(FILES), instead={"/": note})) as other:
        for word in ("/api/", "/resolve/"):
            hub.instead = {word: redirects(lambda handler: f"{other.url}/elsewhere")}
            get("org/name", "--only", "*Q8_0*", HF_TOKEN="hf_secret")  # noqa: S106
    assert len(seen) == 2
    assert {token for _, token in seen} == {None}
