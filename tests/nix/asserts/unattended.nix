{
  evaluate,
  lib,
  outputs,
  ...
}:
let
  node = evaluate [ { nixwulf.cluster.sshKeys = [ "ssh-ed25519 AAAA" ]; } ];
  plain = evaluate [ ];
  blade = outputs.nixosConfigurations.pi-cm5-4-blade1.config;
  sshd = config: config.systemd.units."sshd.service";
  check = node.systemd.services.sshd-started;
  loader = node.boot.loader.systemd-boot;
in
{
  "no shell waits for a password that nobody has" = {
    expected = false;
    actual = node.systemd.enableEmergencyMode;
  };
  "a panic and an initrd without its disk end in a reboot, and so does a system that hangs" = {
    expected = {
      missing = [ ];
      watchdogs = [
        "KExecWatchdogSec=1min"
        "RebootWatchdogSec=30s"
        "RuntimeWatchdogSec=30s"
      ];
    };
    actual = {
      missing = lib.subtractLists node.boot.kernelParams [
        "panic=30"
        "boot.panic_on_fail"
      ];
      watchdogs = lib.naturalSort (
        lib.filter (lib.hasInfix "WatchdogSec=") (
          lib.splitString "\n" node.environment.etc."systemd/system.conf".text
        )
      );
    };
  };
  "what was copied is on the disk before Nix calls it valid" = {
    expected = true;
    actual = node.nix.settings.fsync-store-paths;
  };
  "a generation is good once sshd runs, and one that is not is passed over" = {
    expected = {
      counting = true;
      checked = true;
      after = true;
      before = true;
      requiredBy = true;
      marked = true;
    };
    actual = {
      counting = loader.bootCounting.enable;
      checked = lib.hasSuffix "/systemctl is-active sshd.service" check.serviceConfig.ExecStart;
      after = lib.elem "sshd.service" check.after;
      before = lib.elem "boot-complete.target" check.before;
      requiredBy = lib.elem "boot-complete.target" check.requiredBy;
      # Where the file is that says so.
      marked =
        lib.hasInfix "RequiresMountsFor=/boot\n"
          node.systemd.units."systemd-bless-boot.service".text;
    };
  };
  "a generation that is not good yet and whose sshd does not come up is booted again, until it is passed over" =
    {
      expected = [ ];
      actual = lib.subtractLists (lib.splitString "\n" node.systemd.units."boot-complete.target".text) [
        "OnFailure=reboot.target"
        "OnFailureJobMode=replace-irreversibly"
        "JobTimeoutSec=15min"
        "JobTimeoutAction=reboot"
      ];
    };
  "an update, which may restart sshd, does not mark the boot again" = {
    expected = {
      sshd = [ ];
      restarted = [ ];
    };
    actual = {
      sshd = lib.filter (lib.hasPrefix "boot-complete") (sshd node).requiredBy;
      restarted = lib.filter (name: node.systemd.services.${name}.restartIfChanged) [
        "sshd-started"
        "systemd-bless-boot"
      ];
    };
  };
  "a partition that the firmware reads does not hold up the boot, under either of its names" = {
    expected = [
      true
      true
    ];
    actual = [
      (lib.elem "nofail" node.fileSystems."/boot".options)
      (lib.elem "nofail" blade.fileSystems."/boot/firmware".options)
    ];
  };
  "old generations leave the boot partition by number and the store by age, while nothing else wants the disk" =
    {
      expected = {
        limit = 5;
        told = "5\n";
        gc = true;
        options = "--delete-older-than 30d";
        idle = "idle";
      };
      actual = {
        limit = loader.configurationLimit;
        told = node.environment.etc."nixwulf/boot-generations".text;
        gc = node.nix.gc.automatic;
        inherit (node.nix.gc) options;
        idle = node.systemd.services.nix-gc.serviceConfig.IOSchedulingClass;
      };
    };
  "nobody edits the kernel's command line at the boot menu" = {
    expected = false;
    actual = loader.editor;
  };
  "a crashed engine's memory is not written to the disk" = {
    expected = {
      ProcessSizeMax = "1G";
      ExternalSizeMax = "1G";
    };
    actual = lib.getAttrs [
      "ProcessSizeMax"
      "ExternalSizeMax"
    ] node.systemd.coredump.settings.Coredump;
  };
  "a machine whose cluster has no key is left alone" = {
    expected = {
      emergency = true;
      counting = false;
      gc = false;
    };
    actual = {
      emergency = plain.systemd.enableEmergencyMode;
      counting = plain.boot.loader.systemd-boot.bootCounting.enable;
      gc = plain.nix.gc.automatic;
    };
  };
}
