# `nixwulf update` on a node that boots from its own disk: the node ends on one system, and the driver says which.
{
  lib,
  updates,
  ...
}:
let
  service = script: {
    wantedBy = [ "multi-user.target" ];
    serviceConfig = {
      Type = "oneshot";
      RemainAfterExit = true;
    };
    inherit script;
  };
  # Another initrd, so that the system needs room on the ESP and a reboot.
  otherInitrd.boot.initrd.availableKernelModules = [ "dummy" ];

  tested = updates {
    base = { };
    good = {
      imports = [ otherInitrd ];
      systemd.services.added = service "true";
      nixwulf.llama-rpc.instances.new.fabric = "switch";
    };
    fails.systemd.services.broken = service "echo 'no such model' >&2; exit 1";
    closed.services.openssh.ports = lib.mkForce [ 2222 ];
    elsewhere.nixwulf.fabrics.switch.address = lib.mkForce "192.168.1.77";
    # The partition is full by the time at which the boot loader is to be installed on it.
    fills = {
      imports = [ otherInitrd ];
      systemd.services.fill = service "head -c 2G /dev/zero >/boot/fill || true" // {
        unitConfig.RequiresMountsFor = "/boot";
      };
    };
  };
in
{
  inherit (tested) nodes;

  testScript =
    { nodes, ... }:
    tested.script nodes
    + ''
      with subtest("a partition that boots without room for another kernel is refused before anything is activated"):
          node1.succeed("head -c 2G /dev/zero >/boot/full || true")
          status, words = update("good")
          t.assertEqual(status, 3, words)
          t.assertRegex(words, "'/boot' of 'node1' has 0 MB left, and an update needs [0-9]+ MB")
          node1.succeed("rm /boot/full")
          runs("base")

      with subtest("a unit that fails sends the node back at once"):
          status, words = update("fails")
          t.assertEqual(status, 1, words)
          t.assertIn("Node 'node1' went back to its old system: ", words)
          t.assertIn("'broken.service' failed, see 'journalctl --boot --unit=broken.service' there", words)
          runs("base")

      with subtest("a boot loader that finds no room sends the node back, and it boots what it runs"):
          status, words = update("fills")
          t.assertEqual(status, 1, words)
          t.assertIn("Node 'node1' went back to its old system: ", words)
          t.assertIn("Its boot loader could not be installed again", words)
          runs("base")
          node1.succeed("rm /boot/fill && /run/current-system/bin/switch-to-configuration boot")
          runs("base")

      def rebooted():
          node1.reboot()
          node1.wait_for_unit("multi-user.target", timeout=limit(60))
          # Its interface can come half a minute later.
          desk.wait_until_succeeds("ssh -n root@node1 true", timeout=limit(60))

      # nixwulf wants 30 at least, and an activation takes 5 with KVM.
      SOON_S = max(30, limit(8))
      for name, loss in [("closed", "has sshd on another port"), ("elsewhere", "has another address")]:
          with subtest(f"a node that {loss} goes back when nobody came"):
              status, words = update(name, SOON_S)
              t.assertEqual(status, 1, words)
              t.assertIn("Node 'node1' went back to its old system", words)
              runs("base")

      with subtest("a driver that is killed leaves a node that goes back"):
          begin("good", SOON_S)
          node1.wait_until_succeeds("systemctl is-active nixwulf-rollback.timer", timeout=limit(60))
          # In brackets, or the shell that runs this would be one; Nix calls the driver .nixwulf-wrapped.
          command = "[n]ixwulf.* update --cluster"
          desk.succeed(f"pkill -KILL -f '{command}'")
          desk.wait_until_fails(f"pgrep -f '{command}'", timeout=limit(5))
          # A oneshot unit that runs is not active but activating.
          node1.wait_until_succeeds(
              "! systemctl is-active nixwulf-rollback.timer"
              " && systemctl show -p ActiveState --value nixwulf-rollback.service | grep -v activating"
              f" && test /run/current-system -ef {SYSTEMS['base']}",
              timeout=limit(60),
          )
          runs("base")

      with subtest("a unit that fails by itself again and again does not keep the node from an update"):
          node1.succeed("systemd-run --unit=flaky -p Restart=always -p RestartSec=2 false")
          node1.wait_until_succeeds("systemctl show -p NRestarts --value flaky | grep -v '^0$'")
          status, words = update("good")
          t.assertEqual(status, 0, words)
          t.assertIn("Node 'node1' is updated.", words)
          t.assertIn("A reboot is needed for kernel or initrd: node1.", words)
          runs("good")

      with subtest("an engine that is new runs, though its interface was there before"):
          node1.wait_until_succeeds("systemctl is-active llama-rpc-new.service", timeout=limit(60))

      with subtest("the same again changes nothing"):
          status, words = update("good")
          t.assertEqual(status, 0, words)
          t.assertIn("Node 'node1' runs this system already.", words)

      with subtest("after a reboot the node runs what it was updated to"):
          rebooted()
          runs("good")
          booted = node1.succeed("readlink -f /run/booted-system").strip()
          t.assertEqual(booted, SYSTEMS["good"])

      with subtest("it goes back to the generation before by choice, and boots that"):
          status, words = update(None)
          t.assertEqual(status, 0, words)
          t.assertRegex(words, "Node 'node1' runs generation 1 of .* again[.]")
          t.assertIn("A reboot is needed for kernel or initrd: node1.", words)
          runs("base")
          rebooted()
          runs("base")
          booted = node1.succeed("readlink -f /run/booted-system").strip()
          t.assertEqual(booted, SYSTEMS["base"])

      with subtest("before the first generation there is none"):
          status, words = update(None)
          t.assertEqual(status, 3, words)
          t.assertIn("'node1' has no generation before 'system-1-link'; update it", words)
          runs("base")
    '';
}
