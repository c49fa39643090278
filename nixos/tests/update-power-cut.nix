# The power fails at some point of `nixwulf update`: the node comes back on one system, and the driver says which.
{ updates, ... }:
let
  tested = updates {
    base = { };
    # Another initrd, so that the boot loader has more to write than names.
    good = {
      boot.initrd.availableKernelModules = [ "dummy" ];
      environment.etc."good".text = "activated\n";
    };
    fails.systemd.services.broken = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig.Type = "oneshot";
      script = "exit 1";
    };
  };
in
{
  inherit (tested) nodes;

  # Four hours without KVM: each point is a whole boot.
  globalTimeout = 4 * 3600;

  testScript =
    { nodes, ... }:
    tested.script nodes
    + ''
      PROFILE = "/nix/var/nix/profiles/system"
      # The menu of the boot loader and what it boots, as numbers that change with them: times do not do, since a
      # FAT counts them in steps of two seconds.
      MENU = "cat /boot/loader/entries/nixos-*.conf /boot/loader/loader.conf | cksum"
      DEFAULT = "cksum /boot/loader/loader.conf"


      def cut_when(condition: str) -> None:
          """Arms what takes the power away at a point of the update: no disk is synced, no program is ended."""
          node1.succeed(
              "systemd-run --unit=power-cut --property=DefaultDependencies=no"
              " --setenv=PATH=/run/current-system/sw/bin sh -c"
              f" 'until {condition}; do sleep 0.1; done; echo b >/proc/sysrq-trigger'"
          )


      def came_back() -> None:
          """Waits for the next boot, and until it is marked as good where the boot loader counts it."""
          node1.connected = False
          node1.wait_for_unit("multi-user.target", timeout=limit(120))
          t.assertEqual(node1.succeed("systemctl is-system-running --wait").strip(), "running")
          desk.wait_until_succeeds("ssh -n root@node1 true", timeout=limit(60))


      present = "base"


      def cut(condition: str, target: str | None = None) -> tuple[str, int, str]:
          """Cuts the power in an update to the other system; the system then, and what the driver says."""
          global present
          aim = target or ("good" if present == "base" else "base")
          new = SYSTEMS[aim]
          before = node1.succeed("cat /proc/sys/kernel/random/boot_id")
          menu, default = (node1.succeed(command).strip() for command in (MENU, DEFAULT))
          cut_when(condition.format(new=new, profile=PROFILE, menu=menu, default=default))
          begin(aim, limit(60))
          came_back()
          t.assertNotEqual(node1.succeed("cat /proc/sys/kernel/random/boot_id"), before)
          status, words = ended()
          is_new = node1.succeed("readlink -f /run/current-system").strip() == new
          outcome = "new" if is_new else "old"
          present = aim if is_new else present
          runs(present)
          return outcome, status, words


      EARLY = {
          "the copy begins": "pgrep -f \"[n]ix-daemon --stdio\"",
          "the copy is there": "test -e {new}/init",
      }
      ACTIVATING = {
          "the timer is armed": "test -e /run/systemd/transient/nixwulf-rollback.timer",
          "the activation runs": "test -e /run/systemd/transient/nixwulf-activate.service",
          "the new system is the current one": "test /run/current-system -ef {new}",
      }
      KEEPING = {
          "the driver keeps the system": "test -e /run/nixwulf-update/keeping",
          "the profile leads to it": "test {profile} -ef {new}",
          "the boot loader's menu changes": f"test \"$({MENU})\" != \"{{menu}}\"",
          "the boot loader's default is set": f"test \"$({DEFAULT})\" != \"{{default}}\"",
      }

      for point, condition in EARLY.items():
          with subtest(f"the power fails when {point}: nothing was switched, and the driver names the node"):
              outcome, status, words = cut(condition)
              t.assertEqual(outcome, "old")
              t.assertIn(status, [1, 3], words)
              t.assertRegex(words, "Node 'node1' (has not got its system|went back to its old system|is not switched)")

      for point, condition in ACTIVATING.items():
          with subtest(f"the power fails when {point}: the node boots its old system"):
              outcome, status, words = cut(condition)
              t.assertEqual((outcome, status), ("old", 1), words)
              t.assertIn("Node 'node1' went back to its old system", words)

      for point, condition in KEEPING.items():
          with subtest(f"the power fails when {point}: the node boots one of the two, and the driver says which"):
              outcome, status, words = cut(condition)
              t.assertEqual((status == 0, "Node 'node1' is updated." in words), (outcome == "new",) * 2, words)
              t.assertEqual("went back to its old system" in words, outcome == "old", words)

      with subtest("the power fails while the node goes back: it boots its old system"):
          outcome, status, words = cut("test \"$(systemctl is-active nixwulf-rollback.service)\" = activating", "fails")
          t.assertEqual((outcome, status), ("old", 1), words)

      with subtest("the power fails right after the update: the node boots what it was updated to"):
          aim = "good" if present == "base" else "base"
          status, words = update(aim)
          node1.crash()
          t.assertEqual(status, 0, words)
          boot_from_disk(node1)
          came_back()
          present = aim
          runs(present)
    '';
}
