"""Toolboxes: a tag is held to its first digest, by what a registry answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from launch_plan import Answering
from nixwulf.core.errors import GateError, NixwulfError
from nixwulf.inventory.cluster import load_cluster
from nixwulf.nodes import container
from nixwulf.ops.engines import install

FIRST, SECOND = (f"sha256:{digit * 64}" for digit in "ab")


class Registry:
    """One as the distribution specification has it, which wants a token."""

    def __init__(self):
        self.digests = {"me/box/manifests/new": FIRST}
        self.asked = []


@pytest.fixture
def registry():
    found = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found.asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"token": "granted"}).encode())

        def do_HEAD(self):
            digest = found.digests.get(self.path.removeprefix("/v2/"))
            if self.headers.get("Authorization") != "Bearer granted":
                self.send_response(401)
                realm = f'realm="{found.url}/token",service="here",scope="repository:me/box:pull"'
                self.send_header("WWW-Authenticate", f"Bearer {realm}")
            elif digest is None or "index" not in self.headers["Accept"]:
                self.send_response(404)
            else:
                self.send_response(200)
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    found.name = f"127.0.0.1:{server.server_port}/me/box:new"
    yield found
    server.shutdown()


@pytest.fixture
def cluster(tmp_path):
    return str(tmp_path / "mine.toml")


def test_a_tag_is_looked_up_once_and_its_digest_written_beside_the_cluster_file(registry, cluster):
    lock = container.lock_beside(cluster)
    assert [*install.hold([registry.name], cluster)] == [
        f"The toolbox {registry.name!r} is held to {FIRST} from now on, in {str(lock)!r}."
    ]
    assert registry.asked == ["/token?service=here&scope=repository%3Ame%2Fbox%3Apull"]
    image = registry.name.removesuffix(":new")
    assert json.loads(lock.read_text()) == {
        "version": 1,
        "images": {registry.name: {"image": image, "tag": "new", "digest": FIRST}},
    }
    registry.digests.clear()
    assert [*install.hold([registry.name, "none", "vllm", f"{image}@{SECOND}"], cluster)] == []
    assert container.resolve(registry.name, "s.yaml", cluster) == f"{image}@{FIRST}"


def test_another_digest_later_is_refused_with_both_until_it_is_accepted(registry, cluster):
    [*install.hold([registry.name], cluster)]
    assert install.hold_again(registry.name, cluster, accept=False) is None
    registry.digests["me/box/manifests/new"] = SECOND
    with pytest.raises(GateError) as caught:
        install.hold_again(registry.name, cluster, accept=False)
    assert caught.value.message == (
        f"The tag {registry.name!r} is {SECOND} today and held to {FIRST}; take today's by "
        f"'nixwulf engines install --cluster {cluster} --toolbox {registry.name} --accept', or "
        f"stay by '--toolbox {registry.name.removesuffix(':new')}@{FIRST}'."
    )
    assert container.resolve(registry.name, "s.yaml", cluster).endswith(FIRST)
    assert SECOND in install.hold_again(registry.name, cluster, accept=True)
    assert container.resolve(registry.name, "s.yaml", cluster).endswith(SECOND)


def test_a_tag_that_is_gone_is_still_held_and_a_new_one_that_is_unknown_refused(registry, cluster):
    [*install.hold([registry.name], cluster)]
    registry.digests.clear()
    assert install.hold_again(registry.name, cluster, accept=False) is None
    other = registry.name.replace(":new", ":old")
    with pytest.raises(NixwulfError, match="does not say the digest of .*:old': .*404"):
        [*install.hold([other], cluster)]
    nobody = "127.0.0.1:9/me/box:new"
    with pytest.raises(NixwulfError, match="does not say the digest .*connection attempts failed"):
        [*install.hold([nobody], cluster)]


def test_an_image_of_a_digest_alone_has_no_tag_to_compare(cluster):
    assert install.hold_again("llama-b8070-regressed", cluster, accept=False) is None


def test_a_node_without_podman_is_named_and_one_with_shows_the_programs_inside():
    (first, *_) = load_cluster("framework-2").nodes
    steps = []
    # no output: what a script of the driver's own prints
    node = Answering(first, (), {"script": "/dev/dri\n--\n/usr/bin/llama-bench\n"})
    image = f"docker.io/me/box@{FIRST}"
    found = install.pull([node], image, lambda *words: steps.append(words))
    assert found == {"fw1": ["llama-bench"]}
    assert steps == [("fw1", f"Pull {image}", 0.0)]
    # no output: what a script of the driver's own prints
    with pytest.raises(NixwulfError, match="Node 'fw1' lacks podman; install it"):
        install.pull([Answering(first, (), {"script": "podman\n"})], image, lambda *words: None)
