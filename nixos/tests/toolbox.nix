# A toolbox of a registry on the network: fetched by its digest as soon as there is one, and run without the network too.
{
  desk,
  lib,
  pkgs,
  ...
}:
let
  digestOf = text: "sha256:${builtins.hashString "sha256" text}";

  # An image of one layer with one file; its programs are the host's, by a folder that the toolbox sees.
  layer = {
    mediaType = "application/vnd.oci.image.layer.v1.tar";
    size = 10240;
    digest = "sha256:de0949abbe073365b63746210a9ab1172477595b9c38a955b8013cd0a8ea29fe";
  };
  image = builtins.toJSON {
    architecture = pkgs.stdenv.hostPlatform.go.GOARCH;
    os = "linux";
    config.Env = [ "PATH=${lib.makeBinPath [ pkgs.coreutils ]}" ];
    rootfs = {
      type = "layers";
      diff_ids = [ layer.digest ];
    };
  };
  manifest = builtins.toJSON {
    schemaVersion = 2;
    mediaType = "application/vnd.oci.image.manifest.v1+json";
    config = {
      mediaType = "application/vnd.oci.image.config.v1+json";
      size = lib.stringLength image;
      digest = digestOf image;
    };
    layers = [ layer ];
  };
in
{
  nodes = {
    desk = {
      imports = [ desk ];
      services.dockerRegistry = {
        enable = true;
        listenAddress = "0.0.0.0";
        openFirewall = true;
      };
      # Started by the script: until then the nodes' network has no registry.
      systemd.services.docker-registry.wantedBy = lib.mkForce [ ];
      environment.systemPackages = [ pkgs.curl ];
      environment.etc = {
        "image/config".text = image;
        "image/manifest".text = manifest;
      };
    };
    node1 = {
      virtualisation.containers.registries.insecure = [ "desk:5000" ];
      nixwulf.toolboxes = {
        names = [ "pinned" ];
        folders = [ "/nix/store" ];
        lock.images.pinned = {
          image = "desk:5000/toolbox";
          tag = "latest";
          digest = digestOf manifest;
        };
      };
    };
  };

  testScript = ''
    import base64
    import io
    import tarfile

    def layer(content: bytes) -> bytes:
        """The same bytes wherever they are made: their digest is the image's."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            entry = tarfile.TarInfo("toolbox")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()

    LAYER = layer(b"the pinned image\n")
    REGISTRY = "http://localhost:5000/v2/toolbox"
    TYPE = "Content-Type: application/vnd.oci.image.manifest.v1+json"
    RUN = "toolbox-pinned cat /toolbox"

    def as_bench(command: str) -> str:
        return node1.succeed(f"su - bench -c '{command}'")

    def put(blob: str, digest: str) -> None:
        answer = desk.succeed(f"curl -sfi -X POST {REGISTRY}/blobs/uploads/")
        location = answer.partition("Location: ")[2].split()[0]
        desk.succeed(
            f"curl -sf -X PUT -H 'Content-Type: application/octet-stream' --data-binary @{blob} "
            f"'{location}&digest={digest}'"
        )

    def tag(manifest: str) -> str:
        return desk.succeed(
            f"curl -sfi -X PUT -H '{TYPE}' --data-binary @{manifest} {REGISTRY}/manifests/latest"
        )

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")

    with subtest("a minute after boot the image is asked for, and where none answers nothing has failed"):
        node1.wait_until_succeeds("journalctl -u toolbox-pinned-prefetch | grep 'was not fetched'")
        node1.wait_until_succeeds(
            "systemctl show toolbox-pinned-prefetch | grep -x ActiveState=inactive"
        )
        node1.fail("systemctl is-failed toolbox-pinned-prefetch")
        node1.fail(f"su - bench -c '{RUN}'")

    with subtest("a registry that has the image comes up"):
        desk.succeed("systemctl start docker-registry")
        desk.wait_for_open_port(5000)
        desk.succeed(f"echo {base64.b64encode(LAYER).decode()} | base64 --decode >/tmp/layer")
        put("/tmp/layer", "${layer.digest}")
        put("/etc/image/config", "${digestOf image}")
        t.assertIn("${digestOf manifest}", tag("/etc/image/manifest"))

    with subtest("the next attempt fetches it for the benchmarks' user, who runs it"):
        node1.succeed("systemctl start toolbox-pinned-prefetch")
        node1.succeed("test -e /run/toolbox-pinned/*")
        t.assertEqual(as_bench(RUN).strip(), "the pinned image")

    with subtest("another image under the same tag changes nothing"):
        # The same with one more line feed, which makes another digest.
        desk.succeed("(cat /etc/image/manifest; echo) >/tmp/manifest")
        t.assertNotIn("${digestOf manifest}", tag("/tmp/manifest"))
        as_bench("podman rmi --all --force")
        as_bench("toolbox-pinned --pull")
        listed = as_bench("podman images --digests --format {{.Digest}}")
        t.assertEqual(listed.split(), ["${digestOf manifest}"])

    with subtest("without the network it runs all the same"):
        desk.succeed("systemctl stop docker-registry")
        as_bench("toolbox-pinned --pull")
        t.assertEqual(as_bench(RUN).strip(), "the pinned image")
  '';
}
