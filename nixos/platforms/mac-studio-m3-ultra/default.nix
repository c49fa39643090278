# Mac Studio, M3 Ultra: a nix-darwin module. macOS stays, and what only recovery mode can do is checked, not set.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (config.nixwulf) cluster;
  cfg = config.nixwulf.mac-studio;
  llamaCpp = import ../../../lib/llama-cpp.nix { inherit lib pkgs config; };
in
{
  options.nixwulf.mac-studio.reservedGib = lib.mkOption {
    type = lib.types.nullOr lib.types.ints.positive;
    default = 16;
    description = ''
      GiB of memory that the GPU may not wire, left to macOS; null keeps macOS's own limit. Without it about a quarter of
      the memory is out of reach, and a model beyond the limit is paged and stalls
      (https://github.com/gpustack/gpustack/issues/1375).
    '';
  };

  config = {
    services.openssh.enable = true;
    # Not where no key would be let in: that would lock out everybody.
    services.openssh.extraConfig = lib.mkIf (cluster.sshUser != null) ''
      PasswordAuthentication no
      KbdInteractiveAuthentication no
    '';
    users.users = lib.mkIf (cluster.sshUser != null) {
      ${cluster.sshUser}.openssh.authorizedKeys.keys = cluster.sshKeys;
    };

    power = {
      sleep = {
        computer = "never";
        display = "never";
        harddisk = "never";
      };
      # HPL over Thunderbolt has rebooted both Macs
      # (https://www.jeffgeerling.com/blog/2025/15-tb-vram-on-mac-studio-rdma-over-thunderbolt-5).
      restartAfterFreeze = true;
      restartAfterPowerFailure = true;
    };

    launchd.daemons.nixwulf-wired-limit = lib.mkIf (cfg.reservedGib != null) {
      script = ''
        memory=$(/usr/sbin/sysctl -n hw.memsize)
        exec /usr/sbin/sysctl iogpu.wired_limit_mb=$((memory / 1048576 - ${toString cfg.reservedGib} * 1024))
      '';
      serviceConfig.RunAtLoad = true;
    };

    environment.systemPackages = [
      (pkgs.callPackage ./rdma-check.nix { })
      (llamaCpp cluster.backends)
      pkgs.iperf3
    ];

    documentation.enable = false;
    system.stateVersion = lib.mkDefault 6;
  };
}
