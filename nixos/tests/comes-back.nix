# A node that boots from its own disk comes back by itself from what breaks it, as far as sshd.
{ desk, installed, ... }:
{
  nodes = {
    inherit desk;
    node1 = installed {
      platform = "generic-x86_64";
      modules = [
        (
          { lib, pkgs, ... }:
          {
            # A disk of the user's, which the machine does not have. 90 s are systemd's default, which nodes have; the tests'
            # own module says 300 s, which the driver's shell may need for its terminal.
            fileSystems."/data" = {
              device = "/dev/disk/by-label/data";
              fsType = "ext4";
              options = [ "x-systemd.device-timeout=90s" ];
            };
            environment.systemPackages = [ pkgs.kexec-tools ];
            specialisation = {
              panics.configuration.boot.initrd.systemd.services.panic = {
                wantedBy = [ "initrd.target" ];
                unitConfig.DefaultDependencies = false;
                script = "echo c >/proc/sysrq-trigger";
              };
              deaf.configuration.systemd.services.sshd.serviceConfig.ExecStart =
                lib.mkForce "${pkgs.coreutils}/bin/false";
            };
          }
        )
      ];
    };
  };

  testScript = ''
    PANIC = "Kernel panic - not syncing: sysrq triggered crash"

    def running() -> str:
        return node1.succeed("readlink -f /run/current-system").strip()

    def boots_next(specialisation: str) -> str:
        """Makes a system the newest generation, as an update does; its entry of the boot menu."""
        system = node1.succeed(f"readlink -f /run/current-system/specialisation/{specialisation}").strip()
        node1.succeed(
            f"nix-env --profile /nix/var/nix/profiles/system --set {system} >&2",
            f"{system}/bin/switch-to-configuration boot >&2",
            # Each generation brings its specialisations, which no node has and which the loader could choose.
            "grep -l '^title NixOS (' /boot/loader/entries/* | xargs rm",
        )
        return node1.succeed(f"grep -l 'init={system}/init' /boot/loader/entries/*").strip()

    def reboots() -> None:
        node1.succeed("systemd-run --on-active=2 --timer-property=AccuracySec=1s systemctl reboot")
        node1.connected = False

    def is_reached() -> None:
        # By ssh, and only then by the driver's shell, which a generation that is given up takes with it.
        t.assertEqual(
            desk.wait_until_succeeds("ssh root@node1 uname -n", timeout=90 + limit(90)).strip(), "node1"
        )
        node1.wait_for_unit("sshd.service", timeout=limit(30))

    start_all()
    install(node1)
    boot_from_disk(node1)

    with subtest("a disk that is absent does not keep the node off the network"):
        is_reached()
        node1.succeed("journalctl -b --unit data.mount | grep \"Job data.mount/start failed with result 'dependency'\"")
        node1.succeed("systemctl is-system-running --wait")
        good = running()

    with subtest("a kernel that panics is booted again after 30 s, and the fourth boot is the older generation"):
        t.assertTrue(boots_next("panics").endswith("+3.conf"))
        reboots()
        for boot in [1, 2, 3]:
            wait_for_console(node1, PANIC, boot, limit(60))
            wait_for_console(node1, "Rebooting in 30 seconds", boot, limit(10))
        is_reached()
        t.assertEqual(running(), good)
        t.assertEqual(node1.get_console_log().count(PANIC), 3)

    with subtest("a generation without sshd is booted again, and given up when it was tried three times"):
        entry = boots_next("deaf")
        # Two of the three times are over: each is a whole boot.
        node1.succeed(f"mv {entry} {entry.removesuffix('+3.conf')}+1-2.conf")
        reboots()
        is_reached()
        t.assertEqual(running(), good)
        node1.succeed("journalctl -b -1 | grep 'boot-complete.target: Job boot-complete.target/start failed with result'")

    with subtest("a boot partition that cannot be read does not keep the node off the network"):
        node1.succeed(
            f"kexec -l {good}/kernel --initrd={good}/initrd --command-line=\"init={good}/init $(cat {good}/kernel-params)\"",
            "partition=$(findmnt -no SOURCE /boot) && umount /boot && dd if=/dev/zero of=$partition bs=1M count=64",
            "systemd-run --on-active=2 --timer-property=AccuracySec=1s systemctl kexec",
        )
        node1.connected = False
        is_reached()
        node1.fail("mountpoint /boot")
  '';
}
