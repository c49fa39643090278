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
  cfg = config.nixwulf.distributed-llama;
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };
  fabric = fabricService.on cfg.fabric;
in
{
  options.nixwulf.distributed-llama = {
    enable = lib.mkEnableOption "a worker of distributed-llama";
    package = mkOption {
      type = types.package;
      default = pkgs.distributed-llama;
      defaultText = lib.literalExpression "pkgs.distributed-llama";
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
        (https://github.com/geerlingguy/beowulf-ai-cluster/issues/10).
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = fabricService.known "nixwulf.distributed-llama.fabric" cfg.fabric;

    environment.systemPackages = [ cfg.package ];

    systemd.services.distributed-llama = lib.mkIf (fabric != null) (
      lib.mkMerge [
        (fabricService.unit fabric)
        {
          description = "distributed-llama worker on the fabric '${cfg.fabric}'";
          serviceConfig = fabricService.hardening // {
            ExecStart = utils.escapeSystemdExecArgs [
              (lib.getExe' cfg.package "dllama")
              "worker"
              "--host"
              fabric.address
              "--port"
              (toString cfg.port)
              "--nthreads"
              (toString cfg.nThreads)
            ];
            # It has no reason to end by itself, with whatever code.
            Restart = "always";
            MemoryDenyWriteExecute = true;
          };
        }
      ]
    );

    networking.firewall.interfaces = lib.mkIf (fabric != null) {
      ${fabric.interface}.allowedTCPPorts = [ cfg.port ];
    };
  };
}
