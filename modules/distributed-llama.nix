# A worker of distributed-llama, whose root node the driver or a user starts elsewhere.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption types;
  inherit (config.nixwulf.cluster) where;
  cfg = config.nixwulf.distributed-llama;
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };
  fabric = fabricService.on cfg.fabric;
  gpu = cfg.gpuIndex != null;
in
{
  imports = [ ./fabric-firewall.nix ];

  options.nixwulf.distributed-llama = {
    enable = lib.mkEnableOption "a worker of distributed-llama";
    package = mkOption {
      type = types.package;
      default = if gpu then pkgs.distributed-llama-vulkan else pkgs.distributed-llama;
      defaultText = lib.literalMD "`pkgs.distributed-llama`, and with a `gpuIndex` `pkgs.distributed-llama-vulkan`";
      description = "The distributed-llama to run, 0.16.4 or later: earlier workers listen everywhere, without `--host`.";
    };
    fabric = fabricService.option;
    port = mkOption {
      type = types.port;
      default = 9999;
      description = "TCP port.";
    };
    nThreads = mkOption {
      type = types.ints.positive;
      default = 4;
      description = ''
        Threads, by default the cores of a Raspberry Pi CM5 or an N100. A playbook's fixed 1 left three of four idle
        (https://github.com/geerlingguy/beowulf-ai-cluster/issues/10). With a GPU distributed-llama takes one thread.
      '';
    };
    gpuIndex = mkOption {
      type = types.nullOr types.ints.unsigned;
      default = null;
      example = 0;
      description = "The GPU to compute on, by its place in `vulkaninfo --summary`; without one the CPU computes.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = fabricService.known "nixwulf.distributed-llama.fabric" cfg.fabric ++ [
      {
        assertion = gpu -> cfg.package.vulkanSupport or true;
        message = "${where}: nixwulf.distributed-llama.gpuIndex = ${toString cfg.gpuIndex}, and its package is built without Vulkan; set package to pkgs.distributed-llama-vulkan.";
      }
    ];

    environment.systemPackages = [ cfg.package ];
    # Where Vulkan finds the drivers.
    hardware.graphics.enable = lib.mkIf gpu true;

    systemd.services.distributed-llama = lib.mkIf (fabric != null) (
      lib.mkMerge [
        (fabricService.unit fabric)
        {
          description = "distributed-llama worker on the fabric '${cfg.fabric}'";
          # Mesa's shader cache: there is no home.
          environment = lib.mkIf gpu { XDG_CACHE_HOME = "/var/cache/distributed-llama"; };
          serviceConfig =
            fabricService.hardening
            // fabricService.onlyPeers cfg.fabric [ ]
            // {
              ExecStart = utils.escapeSystemdExecArgs (
                [
                  (lib.getExe' cfg.package "dllama")
                  "worker"
                  "--host"
                  fabric.address
                  "--port"
                  (toString cfg.port)
                  "--nthreads"
                  # More end a worker: "This configuration supports max 1 threads".
                  (toString (if gpu then 1 else cfg.nThreads))
                ]
                ++ lib.optionals gpu [
                  "--gpu-index"
                  (toString cfg.gpuIndex)
                ]
              );
              # It has no reason to end by itself, with whatever code.
              Restart = "always";
              CacheDirectory = lib.mkIf gpu "distributed-llama";
              DeviceAllow = lib.optionals gpu fabricService.gpuDevices.vulkan;
              SupplementaryGroups = lib.optionals gpu [
                "render"
                "video"
              ];
              # Vulkan's drivers compile shaders and map them executable; the CPU's code is ordinary.
              MemoryDenyWriteExecute = !gpu;
            };
        }
      ]
    );

    services.udev.extraRules = lib.mkIf (fabric != null) (
      fabricService.startedBy fabric "distributed-llama.service"
    );

    nixwulf.fabric-firewall.${cfg.fabric}.tcp = [ cfg.port ];
  };
}
