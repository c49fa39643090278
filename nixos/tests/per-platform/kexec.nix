# A machine that runs another system unpacks the tarball of each platform's installer, as the flake gives it to users, and
# starts the installer by it.
platform:
{ nixwulf, pkgs, ... }:
let
  keys = import (pkgs.path + "/nixos/tests/ssh-keys.nix") pkgs;
  installer = import ../machines/live-installer.nix { inherit nixwulf pkgs; } {
    inherit platform;
    kind = "kexec";
  };
in
{
  nodes = {
    inherit (installer) desk;
    # Somebody else's system, which the cluster's key does not open.
    node1 =
      { lib, pkgs, ... }:
      {
        # What an installation by kexec asks for (ops/deploy/refusals.py), and little more.
        virtualisation.memorySize = 4096;
        virtualisation.qemu.options = installer.drive;
        nixwulf.cluster.sshKeys = lib.mkForce [ keys.snakeOilEd25519PublicKey ];
        environment.systemPackages = [ pkgs.cpio ];
      };
  };

  testScript = ''
    INSTALLER = "node1"
    ${installer.script}

    give_drive(node1)
    start_all()
    node1.wait_for_unit("sshd.service", timeout=limit(60))
    desk.succeed("install -m 400 ${keys.snakeOilEd25519PrivateKey} /tmp/factory")
    AS_BEFORE = "ssh -n -F /dev/null -o StrictHostKeyChecking=accept-new -o IdentitiesOnly=yes -i /tmp/factory root@node1"
    desk.wait_until_succeeds(f"{AS_BEFORE} true", timeout=limit(60))

    # What another system would have found and used by itself.
    node1.succeed(
        f"printf 'size=512M, type=swap\\n type=linux\\n' | sfdisk --label gpt {DISK}",
        "udevadm settle",
        f"mkswap {DISK}-part1 && mkfs.ext4 -q {DISK}-part2 && sync",
    )
    before = checksum_of_drive(node1)

    with subtest("the tarball's script starts the installer, with the host key and the address of before"):
        node1.succeed("tar -C /root -xf ${installer.config.system.build.image}", timeout=limit(60))
        printed = desk.succeed(f"{AS_BEFORE} /root/kexec/run 2>&1", timeout=limit(60))
        # nixos-anywhere waits for these words.
        t.assertIn("machine will boot into nixos", printed)
        wait_for_installer()

    with subtest("a key of before is let in too, and no other key and no password"):
        desk.succeed(f"{AS_BEFORE} true", timeout=limit(60))
        t.assertEqual([refused("root"), refused("nixos")], ["publickey", "publickey"])

    with subtest("the screen says how to reach it"):
        retry(lambda _: "ssh root@" in on_installer("cat /dev/vcs1"), timeout_seconds=limit(10))

    with subtest("the machine's disk is as it was"):
        on_installer("sync")
        t.assertEqual(checksum_of_drive(node1), before)

    with subtest("disko formats the disk, and a system can be copied onto it"):
        install_a_file()

    # The test driver asks each machine that runs to sync, and waits for the shell that ended by kexec.
    node1.crash()
  '';
}
