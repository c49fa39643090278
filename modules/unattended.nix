# A node that nobody sits at comes back by itself, or boots what it booted before.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkDefault mkIf;
  inherit (config.services) openssh;
  loader = config.boot.loader.systemd-boot;
  disk = config.nixwulf.disk or { device = null; };
in
{
  config = mkIf (config.nixwulf.bench-node.enable or false) {
    # Nobody has a password, so that a shell for root says only that root is locked, for ever.
    systemd.enableEmergencyMode = mkDefault false;
    # A kernel that panics, and an initrd that does not find the disk, try again after half a minute.
    boot.kernelParams = [
      "panic=30"
      "boot.panic_on_fail"
    ];
    # Where the machine has a watchdog.
    systemd.settings.Manager = {
      RuntimeWatchdogSec = mkDefault "30s";
      # systemd's defaults for a reboot that hangs are ten minutes and never.
      RebootWatchdogSec = mkDefault "30s";
      KExecWatchdogSec = mkDefault "1min";
    };

    boot.loader.systemd-boot = {
      # A generation that three times did not come as far as sshd is passed over for an older one.
      bootCounting.enable = mkDefault true;
      # The partition has 1 GiB, and an initrd with amdgpu is more than 100 MB: a full one refuses the next update.
      configurationLimit = mkDefault 5;
      # Whoever has a keyboard would be root by init=/bin/sh.
      editor = mkDefault false;
    };
    # An update asks how much room will be free once the oldest is deleted.
    environment.etc."nixwulf/boot-generations" =
      mkIf (loader.enable && loader.configurationLimit != null)
        {
          text = "${toString loader.configurationLimit}\n";
        };
    # Not sshd itself: each update that restarts it would stop the target and mark the boot once more, which fails when the
    # entry has a new name meanwhile.
    systemd.services.sshd-started = mkIf (openssh.enable && !openssh.startWhenNeeded) {
      description = "Whether sshd has started, without which a boot is not good";
      requiredBy = [ "boot-complete.target" ];
      before = [ "boot-complete.target" ];
      after = [ "sshd.service" ];
      restartIfChanged = false;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${config.systemd.package}/bin/systemctl is-active sshd.service";
      };
    };

    # The loader counts boots, and somebody has to make the next. Only what waits to be marked as good wants this target.
    systemd.targets.boot-complete = mkIf (loader.enable && loader.bootCounting.enable) {
      onFailure = [ "reboot.target" ];
      unitConfig = {
        OnFailureJobMode = "replace-irreversibly";
        JobTimeoutSec = "15min";
        JobTimeoutAction = "reboot";
      };
    };

    # It is read by the firmware and written by an update; a damaged one must not keep the node off the network.
    fileSystems = mkIf (disk.device != null) {
      ${disk.bootMountPoint}.options = [ "nofail" ];
    };

    # Nothing waits for a mount that is `nofail`, and without the partition a generation cannot be marked as good.
    systemd.services.systemd-bless-boot = mkIf (disk.device != null && loader.enable) {
      restartIfChanged = false;
      unitConfig.RequiresMountsFor = disk.bootMountPoint;
    };

    # A power cut after a copy left store paths that Nix calls valid and never copies again, and whose files were empty
    # (VM test update-power-cut: "Exec format error" at the next update).
    nix.settings.fsync-store-paths = mkDefault true;

    nix.gc = {
      automatic = mkDefault true;
      dates = mkDefault "weekly";
      options = mkDefault "--delete-older-than 30d";
    };
    # A run may be in progress.
    systemd.services.nix-gc.serviceConfig = mkIf config.nix.gc.automatic {
      CPUSchedulingPolicy = "idle";
      IOSchedulingClass = "idle";
    };

    # An engine that crashes has a model in its memory: systemd's limit is 32 GiB, written while the next run begins.
    systemd.coredump.settings.Coredump = {
      ProcessSizeMax = mkDefault "1G";
      ExternalSizeMax = mkDefault "1G";
    };
  };
}
