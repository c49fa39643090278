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
    import shlex

    PANIC = "Kernel panic - not syncing: sysrq triggered crash"

    def on_node(*commands: str) -> str:
        """Output of commands on node1, by ssh: a boot that is given up takes the test driver's shell with it."""
        return "".join(desk.succeed(f"ssh -n root@node1 {shlex.quote(command)}") for command in commands).strip()

    def boots_next(specialisation: str) -> str:
        """Makes a system the newest generation, as an update does; its entry of the boot menu."""
        system = on_node(f"readlink -f /run/current-system/specialisation/{specialisation}")
        on_node(
            f"nix-env --profile /nix/var/nix/profiles/system --set {system} >&2",
            f"{system}/bin/switch-to-configuration boot >&2",
            # Each generation brings its specialisations, which no node has and which the loader could choose.
            "grep -l '^title NixOS (' /boot/loader/entries/* | xargs rm",
        )
        return on_node(f"grep -l 'init={system}/init' /boot/loader/entries/*")

    def goes_down(by: str) -> None:
        """Reboots in 2 s, and waits until ssh answers from another boot."""
        before = on_node("cat /proc/sys/kernel/random/boot_id")
        on_node(f"systemd-run --on-active=2 --timer-property=AccuracySec=1s systemctl {by}")
        desk.wait_until_succeeds(
            f"id=$(ssh -n root@node1 cat /proc/sys/kernel/random/boot_id) && test $id != {before}",
            timeout=300 + 4 * limit(60),
        )

    start_all()
    install(node1)
    boot_from_disk(node1)

    with subtest("a disk that is absent does not keep the node off the network"):
        desk.wait_until_succeeds("ssh -n root@node1 true", timeout=90 + limit(90))
        on_node("systemctl is-system-running --wait")
        on_node("journalctl -b --unit data.mount | grep \"Job data.mount/start failed with result 'dependency'\"")
        good = on_node("readlink -f /run/current-system")

    with subtest("a kernel that panics is booted again after 30 s, and the fourth boot is the older generation"):
        t.assertTrue(boots_next("panics").endswith("+3.conf"))
        goes_down("reboot")
        t.assertEqual(on_node("readlink -f /run/current-system"), good)
        t.assertEqual(node1.get_console_log().count(PANIC), 3)

    with subtest("a generation without sshd is booted again, and given up when it was tried three times"):
        entry = boots_next("deaf")
        # Two of the three times are over: each is a whole boot.
        on_node(f"mv {entry} {entry.removesuffix('+3.conf')}+1-2.conf")
        goes_down("reboot")
        t.assertEqual(on_node("readlink -f /run/current-system"), good)
        on_node("journalctl -b -1 | grep 'boot-complete.target: Job boot-complete.target/start failed with result'")

    with subtest("a boot partition that cannot be read does not keep the node off the network"):
        on_node(
            f"kexec -l {good}/kernel --initrd={good}/initrd --command-line=\"init={good}/init $(cat {good}/kernel-params)\"",
            "partition=$(findmnt -no SOURCE /boot) && umount /boot && dd if=/dev/zero of=$partition bs=1M count=64",
        )
        goes_down("kexec")
        on_node("! mountpoint /boot")
  '';
}
