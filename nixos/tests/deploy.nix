# 'nixwulf deploy' from a desk, onto a node that runs another system: what is wrong is refused, what is right installs the
# node by kexec, and in both cases no other disk changes.
{
  desk,
  installed,
  nixwulf,
  pkgs,
  ...
}:
let
  keys = import (pkgs.path + "/nixos/tests/ssh-keys.nix") pkgs;
  disk = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NIXWULF-target";
  clusterFile = ./deploy/vms.toml;
  deployment = nixwulf.cluster.deployment {
    cluster = nixwulf.inventory.checked clusterFile;
    # The test driver's shell is all that is added to the node, and nothing to its installer.
    modules = [
      (pkgs.path + "/nixos/modules/testing/test-instrumentation.nix")
      { networking.usePredictableInterfaceNames = pkgs.lib.mkForce true; }
    ];
  } "x86_64-linux";
in
{
  nodes = {
    desk = {
      imports = [ desk ];
      environment.systemPackages = [ pkgs.nixos-anywhere ];
      environment.etc."desk-key.pub".text = keys.snakeOilPublicKey;
      # There is no network but the switch: what is installed has to be here.
      virtualisation.additionalPaths = [ deployment ];
    };
    # What the node is before: somebody else's, with a name of its own.
    target = installed {
      platform = "generic-x86_64";
      memoryMiB = 4096;
      modules = [
        {
          networking.hostName = pkgs.lib.mkForce "factory";
          environment.etc."nixwulf/cluster".text = "factory\n";
        }
      ];
    };
  };

  # Three hours without KVM.
  globalTimeout = 3 * 3600;

  testScript = ''
    import hashlib
    import re

    DEPLOY = "cd /tmp && nixwulf deploy --prebuilt ${deployment}"
    EXPECTED = "--expect target=factory --expect-cluster factory"
    DISK, SMALL = "${disk}", "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_OTHER"
    OTHER = target.state_dir / "other.raw"


    def checksum() -> str:
        return hashlib.sha256(OTHER.read_bytes()).hexdigest()


    def cluster(path: str, old: str = "", new: str = "") -> str:
        """A cluster file in which something is changed."""
        text = CLUSTER.replace(old, new) if old else CLUSTER
        t.assertTrue(not old or text != CLUSTER, f"nothing is changed: {old}")
        desk.succeed(f"cat >{path} <<'EOF'\n{text}\nEOF")
        return path


    def refused(words: str, old: str = "", new: str = "", options: str = EXPECTED) -> None:
        """Asserts that nothing is done to the node, and why."""
        file = cluster("/tmp/changed.toml", old, new)
        status, printed = desk.execute(
            f"{DEPLOY} --cluster {file} --yes-wipe target {options} 2>&1", timeout=limit(60)
        )
        t.assertIn(status, [2, 3], printed)
        t.assertIn(words, " ".join(printed.split()))
        t.assertEqual(checksum(), before)


    OTHER.write_bytes(bytes(range(256)) * (64 << 12))
    before = checksum()
    INSTALLED["target"]["start"] += (
        f" -drive if=none,id=other,format=raw,file={OTHER}"
        " -device nvme,drive=other,serial=OTHER"
    )

    desk.start()
    target.start()
    install(target)
    boot_from_disk(target)
    for machine in [desk, target]:
        machine.wait_for_unit("multi-user.target", timeout=limit(60))
    # multi-user.target does not wait for the interface's address.
    desk.wait_until_succeeds("ssh -n root@target true", timeout=limit(60))
    LIMITS = f"--install-timeout {limit(300)} --boot-timeout {limit(120)}"
    host_key = target.succeed("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
    other_key = desk.succeed("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
    with open("${clusterFile}") as file:
        CLUSTER = file.read() + f'host_key = "{host_key}"\n'

    with subtest("a node with another host name or of another cluster is refused"):
        refused("add '--expect target=factory'", options="--expect-cluster factory")
        refused("runs a system of the cluster 'factory'", options="--expect target=factory")

    with subtest("a node with another host key than the pinned one is refused"):
        refused("it has another host key than the host_key", host_key, other_key)

    with subtest("a disk that is not there, too small, or not the configuration's is refused"):
        refused("has no disk '/dev/disk/by-id/nvme-none'", DISK, "/dev/disk/by-id/nvme-none")
        refused("of 0.1 GB, and needs 16 GB", DISK, SMALL)
        refused(f"has the disk '{SMALL}' in /tmp/changed.toml, and", DISK, SMALL)

    with subtest("an interface that the machine does not have is refused"):
        refused("has no interface 'enp77s0'", "ens16", "enp77s0")

    with subtest("nothing was done to the node until here"):
        desk.succeed("test ! -e /tmp/runs")
        t.assertEqual(target.succeed("uname -n").strip(), "factory")

    with subtest("the node is installed by kexec with the flake's own installer, and verified"):
        cluster("/tmp/vms.toml")
        printed = desk.succeed(
            f"{DEPLOY} --cluster /tmp/vms.toml --yes-wipe target {EXPECTED} {LIMITS} 2>&1",
            timeout=limit(420),
        )
        t.assertIn("target  verified", printed)
        written = desk.succeed("cat /tmp/runs/deploy-vms-*/target.log")
        t.assertIn("the machine will boot into nixos", written)
        # Nix on the installer asks its signed cache, which is not reached here; nothing else is asked.
        t.assertLessEqual(set(re.findall(r"https?://[^/\s]+", written)), {"https://cache.nixos.org"})
        t.assertEqual(checksum(), before)

    with subtest("another disk with a partition of the same name is refused until that is renamed"):
        label = desk.succeed("ssh -n root@target 'lsblk --noheadings --output PARTLABEL $(findmnt -no SOURCE /)'")
        desk.succeed(f"echo 'size=8M, name=\"{label.strip()}\"' | ssh root@target sfdisk --label gpt {SMALL}")
        before = checksum()
        refused(f"has another disk with '{label.strip()}', {SMALL}", options="")
        desk.succeed(f"ssh -n root@target sfdisk --part-label {SMALL} 1 old-1")
        before = checksum()

    with subtest("a node that goes away in the middle is reported, and boots what it had"):
        desk.succeed(
            f"({DEPLOY} --cluster /tmp/vms.toml --yes-wipe target {LIMITS} && echo 0 >/tmp/done || echo $? >/tmp/done)"
            " >/tmp/log 2>&1 &"
        )
        desk.wait_until_succeeds(
            "grep 'target: Switching system into kexec' /tmp/log", timeout=limit(60)
        )
        target.crash()
        desk.wait_until_succeeds("test -s /tmp/done", timeout=limit(120))
        t.assertEqual(desk.succeed("cat /tmp/done").strip(), "1")
        t.assertIn("Node 'target' is not installed: ", desk.succeed("cat /tmp/log"))
        t.assertEqual(checksum(), before)
        boot_from_disk(target)
        desk.wait_until_succeeds("ssh -n root@target true", timeout=limit(120))

    with subtest("the same command installs the node a second time"):
        desk.succeed(
            f"{DEPLOY} --cluster /tmp/vms.toml --yes-wipe target {LIMITS} >&2",
            timeout=limit(420),
        )
        t.assertEqual(checksum(), before)
  '';
}
