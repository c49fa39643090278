# `nixwulf update` on a node that boots from its own disk: the node ends on one system, and the driver says which.
# A desk in a VM has no nixpkgs, so its flake names systems that are built; all after that is what a user runs.
{
  desk,
  installed,
  lib,
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

  systemsOf =
    nodes: lib.mapAttrs (_: module: nodes.node1.system.build.installed.extended [ module ]) variants;
  variants = {
    base = { };
    good = {
      imports = [ otherInitrd ];
      systemd.services.added = service "true";
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
  nodes = {
    node1 = installed { platform = "generic-x86_64"; };
    desk =
      { nodes, ... }:
      {
        imports = [ desk ];
        virtualisation.additionalPaths = lib.attrValues (systemsOf nodes);
        environment.etc."desk.nix".text = ''
          {
            outputs = _: {
              nixosConfigurations.vms-node1.config.system.build.toplevel =
                let
                  system = builtins.fromJSON (builtins.readFile ./system.json);
                in
                {
                  type = "derivation";
                  name = "system";
                  outputName = "out";
                  drvPath = system.drv;
                  outPath = system.out;
                };
            };
          }
        '';
      };
  };

  testScript =
    { nodes, ... }:
    ''
      SYSTEMS: dict[str, dict[str, str]] = ${
        builtins.toJSON (
          lib.mapAttrs (_: system: {
            # Its text alone: what it was made of is not needed, because what it makes is there.
            drv = builtins.unsafeDiscardOutputDependency system.drvPath;
            out = "${system}";
          }) (systemsOf nodes)
        )
      }


      def boots() -> list[str]:
          """The kernel parameters of the entry that the loader prefers; if it is not there, of all, for it takes any."""
          preferred = node1.succeed("sed -n 's/^preferred //p' /boot/loader/loader.conf").strip()
          # A name ends in +TRIES until the entry is known to be good.
          entry = preferred.removesuffix(".conf") + "{,+*}.conf"
          shown = "sed -n 's/^options //p' /boot/loader/entries/"
          status, options = node1.execute(f"shopt -s nullglob; ls /boot/loader/entries/{entry} && {shown}{entry}")
          if status:
              options = node1.succeed(f"{shown}*.conf")
          return [line for line in options.splitlines() if "init=" in line]


      def runs(name: str) -> None:
          """The node is on one system: it runs, the profile leads there, and the boot loader starts it next."""
          path = SYSTEMS[name]["out"]
          t.assertEqual(node1.succeed("readlink -f /run/current-system").strip(), path)
          t.assertEqual(node1.succeed("readlink -f /nix/var/nix/profiles/system").strip(), path)
          for options in boots():
              t.assertIn(f"init={path}/init", options.split())
          node1.fail("systemctl is-active nixwulf-rollback.timer nixwulf-rollback.service")


      def begin(name: str, rollback_after_s: int) -> None:
          """Starts an update of the node; /tmp/update gets its log and status."""
          desk.succeed(f"cat >/root/flake/system.json <<'EOF'\n{json.dumps(SYSTEMS[name])}\nEOF")
          desk.succeed(
              "rm -rf /tmp/update && mkdir /tmp/update && (nixwulf update --cluster /root/cluster.toml"
              f" --flake path:/root/flake --rollback-after {rollback_after_s}"
              " && echo 0 >/tmp/update/status || echo $? >/tmp/update/status)"
              " >/tmp/update/log 2>&1 &"
          )


      def ended() -> tuple[int, str]:
          """The exit status and the words of the update."""
          desk.wait_until_succeeds("test -s /tmp/update/status", timeout=limit(120))
          return int(desk.succeed("cat /tmp/update/status")), desk.succeed("cat /tmp/update/log")


      def update(name: str, rollback_after_s: int = 900) -> tuple[int, str]:
          begin(name, rollback_after_s)
          return ended()


      start_all()
      install(node1)
      boot_from_disk(node1)
      for machine in machines:
          machine.wait_for_unit("multi-user.target", timeout=limit(60))
      desk.succeed("mkdir /root/flake && cp -L /etc/desk.nix /root/flake/flake.nix")
      desk.succeed(
          "(sed '/^platform = /a disk = \"${nodes.node1.system.build.installed.config.nixwulf.disk.device}\"'"
          " /etc/cluster.toml; echo '[deploy]'; echo \"ssh_keys = ['$(ssh-keygen -y -f /etc/desk-key)']\")"
          " >/root/cluster.toml"
      )
      for system in SYSTEMS.values():
          # A derivation's path, no deriver, and none of the references that a build would need.
          desk.succeed(f"printf '%s\\n\\n0\\n' {system['drv']} | nix-store --register-validity")

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
          desk.succeed("pkill -KILL -f 'nixwulf update'")
          node1.wait_until_fails(
              "systemctl is-active nixwulf-rollback.timer nixwulf-rollback.service", timeout=limit(60)
          )
          node1.wait_until_succeeds("systemctl show -p SubState nixwulf-rollback.service | grep -qv start")
          runs("base")

      with subtest("a unit that fails by itself again and again does not keep the node from an update"):
          node1.succeed("systemd-run --unit=flaky -p Restart=always -p RestartSec=2 false")
          node1.wait_until_succeeds("systemctl show -p NRestarts --value flaky | grep -v '^0$'")
          status, words = update("good")
          t.assertEqual(status, 0, words)
          t.assertIn("Node 'node1' is updated.", words)
          t.assertIn("A reboot is needed for kernel or initrd: node1.", words)
          runs("good")

      with subtest("the same again changes nothing"):
          status, words = update("good")
          t.assertEqual(status, 0, words)
          t.assertIn("Node 'node1' runs this system already.", words)

      with subtest("after a reboot the node runs what it was updated to"):
          node1.reboot()
          node1.wait_for_unit("multi-user.target", timeout=limit(60))
          runs("good")
          booted = node1.succeed("readlink -f /run/booted-system").strip()
          t.assertEqual(booted, SYSTEMS["good"]["out"])
    '';
}
