# vLLM over several nodes: Ray or vLLM's own multi-node mode, tcp or rdma, from the fabric that it is given.
# Off until somebody starts it: nodes that start at different times hang, and the driver starts them together.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption optionals types;
  inherit (config.nixwulf) cluster toolboxes;
  inherit (cluster) where;
  cfg = config.nixwulf.vllm;
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };
  fabric = fabricService.on cfg.fabric;

  nccl = import ../lib/nccl.nix { inherit lib; };

  ray = cfg.mode == "ray";
  inToolbox = cfg.toolbox != null;
  localModel = lib.hasPrefix "/" cfg.model;
  rank = lib.lists.findFirstIndex (address: address == fabric.address) null cfg.addresses;
  head = lib.head cfg.addresses;
  isHead = rank == 0;
  # What has to hold before there is anything to render.
  ready = fabric != null && rank != null && (!inToolbox || toolboxes.wrappers ? ${cfg.toolbox});

  environment =
    nccl {
      inherit fabric;
      inherit (cfg) transport;
    }
    // {
      VLLM_HOST_IP = fabric.address;
      # EngineCore dies without a trace otherwise.
      PYTHONFAULTHANDLER = "1";
    }
    // lib.optionalAttrs ray {
      # Where GPU and CPU share memory, Ray takes a loaded model for a leak and kills workers
      # (https://github.com/amd/playbooks/issues/771).
      RAY_memory_monitor_refresh_ms = "0";
      RAY_AUTH_MODE = "token";
    }
    // lib.optionalAttrs (!inToolbox) {
      HOME = "/var/lib/vllm";
      # In /tmp, Triton's cache is gone after a boot and takes 25 minutes to make again.
      TRITON_CACHE_DIR = "/var/cache/vllm/triton";
      VLLM_CACHE_ROOT = "/var/cache/vllm/vllm";
    }
    // cfg.environment;

  serve = [
    "vllm"
    "serve"
    cfg.model
    "--tensor-parallel-size"
    cfg.tensorParallelSize
    "--gpu-memory-utilization"
    (builtins.toJSON cfg.gpuMemoryUtilization)
    "--host"
    fabric.address
    "--port"
    cfg.port
  ]
  ++ lib.optional cfg.eager "--enforce-eager"
  ++ optionals (cfg.maxModelLen != null) [
    "--max-model-len"
    cfg.maxModelLen
  ]
  ++ optionals ray [
    "--distributed-executor-backend"
    "ray"
  ]
  ++ optionals (!ray) [
    "--nnodes"
    (lib.length cfg.addresses)
    "--node-rank"
    rank
    "--master-addr"
    head
    "--master-port"
    cfg.masterPort
  ]
  ++ lib.optional (!ray && !isHead) "--headless"
  ++ cfg.extraArguments;

  rayStart =
    role:
    [
      "ray"
      "start"
      "--node-ip-address=${fabric.address}"
      "--num-gpus=1"
      "--disable-usage-stats"
    ]
    ++ role;

  command =
    if !ray then
      serve
    else if isHead then
      # In one unit, so that both see one /tmp, one user and one container: Ray's sockets are in /tmp/ray.
      [
        "bash"
        "-c"
        "${
          lib.escapeShellArgs (rayStart [
            "--head"
            "--port=${toString cfg.rayPort}"
            "--include-dashboard=false"
          ])
        } && exec ${lib.escapeShellArgs serve}"
      ]
    else
      rayStart [
        "--address=${head}:${toString cfg.rayPort}"
        "--block"
      ];

  program =
    lib.optional ray (lib.getExe (import ../lib/ray-token.nix { inherit pkgs; }))
    ++ (
      if inToolbox then
        [ (lib.getExe toolboxes.wrappers.${cfg.toolbox}) ]
      else
        [ (lib.getExe' pkgs.coreutils "env") ]
    );
in
{
  imports = [
    ./fabric-firewall.nix
    ./toolboxes.nix
  ];

  options.nixwulf.vllm = {
    enable = lib.mkEnableOption "vLLM services for this node's part of a cluster";
    package = mkOption {
      type = types.package;
      default = pkgs.python3.withPackages (python: [ python.vllm ]);
      defaultText = lib.literalExpression "pkgs.python3.withPackages (python: [ python.vllm ])";
      description = "What has `vllm` and `ray`, where no toolbox has them.";
    };
    toolbox = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "vllm";
      description = ''
        A toolbox of nixwulf.toolboxes to run in. On Strix Halo it is the way that works: its RCCL is built for gfx1151,
        and nixpkgs' vLLM for ROCm is shaky (https://github.com/NixOS/nixpkgs/issues/549327).
      '';
    };
    fabric = fabricService.option;
    transport = mkOption {
      type = types.enum [
        "tcp"
        "rdma"
      ];
      default = "tcp";
      description = "How NCCL crosses the fabric.";
    };
    mode = mkOption {
      type = types.enum [
        "ray"
        "mp"
      ];
      default = "ray";
      description = ''
        Whether Ray or vLLM itself starts the ranks. Either way `vllm.service` has to be started on all nodes.
      '';
    };
    model = mkOption {
      type = types.str;
      example = "/models/Qwen3-8B";
      description = "The model to serve: a folder that every node has, or a name on Hugging Face.";
    };
    addresses = mkOption {
      type = types.listOf types.str;
      default = lib.catAttrs cfg.fabric (lib.catAttrs "addresses" cluster.nodes);
      defaultText = lib.literalMD "the cluster's nodes on the fabric";
      description = "Addresses of the nodes that take part, the head first.";
    };
    tensorParallelSize = mkOption {
      type = types.ints.positive;
      default = lib.max 1 (lib.length cfg.addresses);
      defaultText = lib.literalMD "the number of nodes";
      description = "Over how many GPUs tensors are split; each node has one.";
    };
    gpuMemoryUtilization = mkOption {
      type = types.numbers.between 0.05 1;
      default = cfg.gpuMemoryCeiling;
      defaultText = lib.literalExpression "config.nixwulf.vllm.gpuMemoryCeiling";
      description = "Share of the GPU's memory that vLLM takes.";
    };
    gpuMemoryCeiling = mkOption {
      type = types.numbers.between 0.05 1;
      default = 0.9;
      description = ''
        What is refused above, since the memory is the system's too: 0.95 runs out of memory on Strix Halo, and above
        0.84 a GB10 thrashes, so that its platform says 0.76 (https://github.com/graham33/nixos-dgx-spark).
      '';
    };
    eager = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether to capture no graphs: that freezes on APUs in several nodes, and was worth 1-3 % there
        (https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/rdma_cluster/setup_guide.md).
      '';
    };
    maxModelLen = mkOption {
      type = types.nullOr types.ints.positive;
      default = null;
      description = "Context length; the model's by default.";
    };
    port = mkOption {
      type = types.port;
      default = 8000;
      description = ''
        TCP port of the OpenAI-compatible API, on the head's address on the fabric, for the cluster's nodes: others reach
        it by `ssh -L`.
      '';
    };
    rayPort = mkOption {
      type = types.port;
      default = 6379;
      description = "TCP port of Ray's head.";
    };
    rayTokenFile = mkOption {
      type = types.externalPath;
      default = "/var/lib/nixwulf/ray-token";
      description = ''
        A file with the token that Ray's nodes show each other (Ray 2.52 or later), the same on all nodes. It is no part of
        the configuration, which everybody may read; without it the service does not start.
      '';
    };
    masterPort = mkOption {
      type = types.port;
      default = 29501;
      description = "TCP port at which the nodes meet without Ray.";
    };
    autoStart = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the service starts with the fabric's interface, and again after a failure.";
    };
    environment = mkOption {
      type = types.attrsOf types.str;
      default = { };
      description = "More environment variables, and others than those that follow from the transport.";
    };
    extraArguments = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "More arguments of `vllm serve`.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = fabricService.known "nixwulf.vllm.fabric" cfg.fabric ++ [
      {
        assertion = fabric == null || rank != null;
        message = "${where}: nixwulf.vllm.addresses does not have this node's address on '${cfg.fabric}'; add it, or disable nixwulf.vllm here.";
      }
      {
        assertion = cfg.transport == "tcp" || fabric == null || fabric.rdmaDevice != null;
        message = "${where}: nixwulf.vllm.transport = \"rdma\" needs an RDMA device on the fabric '${cfg.fabric}'; add rdma_device to the node's place on it ('rdma link' names it).";
      }
      {
        assertion = cfg.gpuMemoryUtilization <= cfg.gpuMemoryCeiling;
        message = "${where}: nixwulf.vllm.gpuMemoryUtilization = ${builtins.toJSON cfg.gpuMemoryUtilization} leaves the system too little memory; set ${builtins.toJSON cfg.gpuMemoryCeiling} or less.";
      }
      {
        assertion = !inToolbox || lib.elem cfg.toolbox toolboxes.names;
        message = "${where}: nixwulf.vllm.toolbox = \"${toString cfg.toolbox}\" is not a toolbox of this node; add it to nixwulf.toolboxes.names.";
      }
      {
        # nixpkgs throws for packages with known vulnerabilities, without a word of who asked for it.
        assertion = inToolbox || (builtins.tryEval cfg.package.drvPath).success;
        message = "${where}: nixpkgs refuses nixwulf.vllm.package (its vLLM has known vulnerabilities); set nixwulf.vllm.toolbox, or permit the package in the platform's nixpkgs.nix.";
      }
    ];

    systemd.services.vllm = lib.mkIf ready (
      lib.mkMerge [
        (fabricService.unit fabric)
        {
          description = "vLLM, rank ${toString rank} of ${toString (lib.length cfg.addresses)}, on the fabric '${cfg.fabric}'";
          inherit environment;
          path = lib.optionals (!inToolbox) [
            cfg.package
            pkgs.bash
          ];
          serviceConfig = {
            ExecStart = utils.escapeSystemdExecArgs (program ++ command);
            # A crash and a lost peer are results; a service that comes back by itself hides them.
            Restart = lib.mkIf (!cfg.autoStart) "no";
            LoadCredential = lib.mkIf ray "ray-token:${cfg.rayTokenFile}";
          }
          // (
            if inToolbox then
              # podman makes the sandbox, and cannot do so inside another one.
              {
                User = toolboxes.user;
                LimitCORE = 0;
              }
            else
              fabricService.hardening
              # A name on Hugging Face is fetched from there.
              // lib.optionalAttrs localModel (fabricService.onlyPeers cfg.fabric [ "localhost" ])
              // {
                StateDirectory = "vllm";
                CacheDirectory = "vllm";
                # Of /home it sees the model, if that is there.
                ProtectHome = "tmpfs";
                BindReadOnlyPaths = lib.optional localModel (fabricService.quotedPath cfg.model);
                DeviceAllow =
                  fabricService.gpuDevices.rocm ++ fabricService.gpuDevices.cuda ++ fabricService.rdmaDevices fabric;
                SupplementaryGroups = [
                  "render"
                  "video"
                ];
              }
          );
        }
      ]
    );

    nixwulf.toolboxes.folders = lib.mkIf (inToolbox && localModel) [
      cluster.models
      cfg.model
    ];

    services.udev.extraRules = lib.mkIf (ready && cfg.autoStart) (
      fabricService.startedBy fabric "vllm.service"
    );

    nixwulf.fabric-firewall.${cfg.fabric}.tcp = [
      cfg.port
      (if ray then cfg.rayPort else cfg.masterPort)
      # NCCL, Gloo and Ray's managers take these.
      fabricService.ranges.free
    ]
    ++ lib.optional ray fabricService.ranges.ray;
  };
}
