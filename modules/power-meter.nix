# Lets benchmarks read how much energy the processor took.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  cfg = config.nixwulf.power-meter;
  inherit (config.nixwulf) bench-node;
  inherit (import ../lib/fabric-service.nix { inherit lib utils config; }) hardening;
  chgrp = lib.getExe' pkgs.coreutils "chgrp";
  chmod = lib.getExe' pkgs.coreutils "chmod";
in
{
  imports = [ ./bench-node.nix ];

  options.nixwulf.power-meter = {
    enable = lib.mkEnableOption ''
      reading RAPL's energy counters (`/sys/class/powercap`) without being root. Only root may since 2020, because
      other users' secrets can be computed from fine-grained power readings (PLATYPUS, CVE-2020-8694 and, for AMD,
      CVE-2020-12912; https://platypusattack.com). So do not enable it on a machine that strangers use as well. What
      the GPU and the sensors (hwmon) tell of power is readable for everyone anyway'';
    group = lib.mkOption {
      type = lib.types.str;
      default = "bench";
      description = "The group that may read the counters.";
    };
  };

  config = lib.mkIf cfg.enable {
    users.groups.${cfg.group}.members = lib.optional bench-node.enable bench-node.user;
    # By udev, not tmpfiles: the counters come with a kernel module, maybe after tmpfiles ran.
    services.udev.extraRules = ''
      ACTION=="add", SUBSYSTEM=="powercap", TEST=="energy_uj", RUN+="${chgrp} ${cfg.group} %S%p/energy_uj", RUN+="${chmod} g+r %S%p/energy_uj"
    '';
    # A switch replays no event for what is there already.
    systemd.services.power-meter = {
      description = "Let the group ${cfg.group} read the energy counters";
      wantedBy = [ "multi-user.target" ];
      script = ''
        for counter in /sys/class/powercap/*/energy_uj; do
          if [ -e "$counter" ]; then
            chgrp ${cfg.group} "$counter"
            chmod g+r "$counter"
          fi
        done
      '';
      serviceConfig = hardening // {
        Type = "oneshot";
        RemainAfterExit = true;
        # The counters are root's files in /sys.
        DynamicUser = false;
        PrivateUsers = false;
        ProtectKernelTunables = false;
        CapabilityBoundingSet = [ "CAP_CHOWN" ];
        PrivateNetwork = true;
      };
    };
  };
}
