# The shell scripts that the flake writes, as text: tests run them with programs and folders of their own.
{
  lib,
  pkgs,
  outputs,
}:
let
  systems = lib.mapAttrs (_: system: system.config) outputs.nixosConfigurations;
  withToolbox = outputs.nixosConfigurations.mini-3-mini1.extendModules {
    modules = [
      {
        nixwulf.power-meter.enable = true;
        nixwulf.toolboxes.names = [ "vllm" ];
        nixwulf.toolboxes.folders = [
          "/usr"
          "/does/not exist"
        ];
      }
    ];
  };
  # What systemd runs in a shell of its own.
  unit = config: name: "#!/usr/bin/env bash\nset -e\n" + config.systemd.services.${name}.script;
  withInfiniband = outputs.nixosConfigurations.mini-3-mini1.extendModules {
    modules = [
      {
        nixwulf.rdma.subnetManager = "mini1";
        nixwulf.fabrics.ib = {
          kind = "infiniband";
          interface = "ib0";
          address = "10.3.0.1";
          prefixLength = 24;
          mtu = 2044;
          speedGbps = 100;
          rdmaDevice = "mlx5_0";
          gidIndex = 0;
        };
      }
    ];
  };
  rdmaCheck = pkgs.callPackage ../../nixos/platforms/mac-studio-m3-ultra/rdma-check.nix { };
in
{
  # One of the checks that switch-to-configuration runs, each in a shell of its own.
  hostname-guard =
    "#!/usr/bin/env bash\nset -euo pipefail\n" + systems.mini-3-mini1.system.preSwitchChecks.hostname;
  pi-firmware-boot = systems.pi-cm5-4-blade1.system.build.installFirmwareBoot.text;
  mac-rdma-check = rdmaCheck.text;
  with-ray-token = (import ../../lib/ray-token.nix { inherit pkgs; }).text;
  opensm = unit withInfiniband.config "opensm";
  power-meter = unit withToolbox.config "power-meter";
  toolbox-vllm-prefetch = unit withToolbox.config "toolbox-vllm-prefetch";
  toolbox-vllm = withToolbox.config.nixwulf.toolboxes.wrappers.vllm.text;
}
// lib.mapAttrs' (name: program: lib.nameValuePair "app-${name}" program.text) (
  # A revision of its own: a flake whose inputs are overridden has none.
  (import ../../lib/apps.nix {
    inherit lib;
    revision = "0123456-dirty";
  }).programs
    pkgs
)
