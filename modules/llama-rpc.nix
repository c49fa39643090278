# llama.cpp's RPC servers as services: one instance a fabric, or several with different devices.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption types;
  inherit (config.nixwulf.cluster) where backends;
  own = config.nixwulf.bench-node.llamaCpp;
  llamaCpp = import ../lib/llama-cpp.nix { inherit lib pkgs config; };
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };

  instances = lib.filterAttrs (_: instance: instance.enable) config.nixwulf.llama-rpc.instances;
  onFabric = lib.filterAttrs (_: instance: fabricService.on instance.fabric != null) instances;

  endpoint = instance: "${(fabricService.on instance.fabric).address}:${toString instance.port}";
  shared = lib.filterAttrs (_: names: lib.length names > 1) (
    lib.groupBy (name: endpoint onFabric.${name}) (lib.attrNames onFabric)
  );

  # What the first device of a backend is called by llama.cpp.
  firstDevice = {
    cpu = "CPU";
    vulkan = "Vulkan0";
    rocm = "ROCm0";
    cuda = "CUDA0";
  };

  instanceModule =
    { config, ... }:
    {
      options = {
        enable = mkOption {
          type = types.bool;
          default = true;
          description = "Whether this instance runs.";
        };
        backend = mkOption {
          type = types.enum [
            "cpu"
            "vulkan"
            "rocm"
            "cuda"
          ];
          default = lib.head (backends ++ [ "cpu" ]);
          defaultText = lib.literalMD "the first that the platform's facts list for its GPU, else `cpu`";
          description = ''
            What computes: it picks the build of llama.cpp and the devices that the service may open. On Strix Halo
            Vulkan is the reference: ROCm corrupts the output of some models
            (https://github.com/ggml-org/llama.cpp/issues/27579).
          '';
        };
        package = mkOption {
          type = types.package;
          # A package of somebody's own may have any backend.
          default =
            if own != null && lib.elem config.backend (own.backends or [ config.backend ]) then
              own
            else
              llamaCpp [ config.backend ];
          defaultText = lib.literalMD "`nixwulf.bench-node.llamaCpp` where it has the backend, else this flake's for it";
          description = ''
            The llama.cpp to run. The server and all clients have to be one build: the protocol changes between versions
            (https://github.com/lhl/strix-halo-testing/blob/main/rpc-test/README.md).
          '';
        };
        fabric = fabricService.option;
        port = mkOption {
          type = types.port;
          default = 50052;
          description = "TCP port.";
        };
        device = mkOption {
          type = types.nullOr types.str;
          # A server that starts before its GPU has one offers the CPU and prints no error; with a device named it ends,
          # and is started again. One of a build with two backends would offer the one GPU twice.
          default =
            if config.backend != "cpu" || lib.length (config.package.backends or [ ]) > 1 then
              firstDevice.${config.backend}
            else
              null;
          defaultText = lib.literalMD "the backend's first device; null on the CPU, where the package has no other";
          example = "Vulkan0";
          description = "Devices to offer, separated by commas; null is all GPUs, and the CPU where there is none.";
        };
        threads = mkOption {
          type = types.nullOr types.ints.positive;
          default = null;
          description = "Threads of the CPU backend; half of the CPU's by default.";
        };
        cache = mkOption {
          type = types.bool;
          default = true;
          description = ''
            Keep the tensors that were sent in /var/cache: without it every run sends the whole model again, which
            takes minutes (https://github.com/geerlingguy/beowulf-ai-cluster/issues/17).
          '';
        };
        environment = mkOption {
          type = types.attrsOf types.str;
          default = { };
          example = {
            GGML_RDMA_DEV = "none";
          };
          description = "More environment variables. The example keeps an instance on a fabric with RDMA to TCP.";
        };
      };
    };

  service =
    name: instance:
    let
      fabric = fabricService.on instance.fabric;
      folder = "llama-rpc/${name}";
      gpu = instance.backend != "cpu";
    in
    lib.mkMerge [
      (fabricService.unit fabric)
      {
        description = "llama.cpp RPC server '${name}' on the fabric '${instance.fabric}'";
        environment = {
          LLAMA_CACHE = "/var/cache/${folder}";
          # Mesa's shader cache: there is no home.
          XDG_CACHE_HOME = "/var/cache/${folder}";
          # Unset, it takes whatever device has the TCP address as a GID (ggml/src/ggml-rpc/transport.cpp). No device
          # has the name "none".
          GGML_RDMA_DEV = if fabric.rdmaDevice == null then "none" else fabric.rdmaDevice;
        }
        // lib.optionalAttrs (fabric.gidIndex != null) { GGML_RDMA_GID = toString fabric.gidIndex; }
        // instance.environment;
        serviceConfig =
          fabricService.hardening
          // fabricService.onlyPeers instance.fabric [ ]
          // {
            ExecStart = utils.escapeSystemdExecArgs (
              [
                # nixpkgs' name of it, which the flake's variants have too; upstream's is ggml-rpc-server.
                (lib.getExe' instance.package "llama-rpc-server")
                "--host"
                fabric.address
                "--port"
                (toString instance.port)
              ]
              ++ lib.optionals (instance.device != null) [
                "--device"
                instance.device
              ]
              ++ lib.optionals (instance.threads != null) [
                "--threads"
                (toString instance.threads)
              ]
              ++ lib.optional instance.cache "--cache"
            );
            # It also exits with 0 when it could not bind its address (tools/rpc/rpc-server.cpp ends in `return 0`).
            Restart = "always";
            CacheDirectory = folder;
            DeviceAllow = fabricService.gpuDevices.${instance.backend} ++ fabricService.rdmaDevices fabric;
            SupplementaryGroups = lib.optionals gpu [
              "render"
              "video"
            ];
            # GPU runtimes compile kernels and map them executable; the CPU backend is ordinary code.
            MemoryDenyWriteExecute = !gpu;
            # ROCm and CUDA read /proc/meminfo, the CPU's backend its own process only.
            ProcSubset = if gpu then "all" else "pid";
          };
      }
    ];
in
{
  imports = [ ./bench-node.nix ];

  options.nixwulf.llama-rpc.instances = mkOption {
    type = types.attrsOf (types.submodule instanceModule);
    default = { };
    example = {
      cable = {
        fabric = "cable";
        backend = "vulkan";
      };
    };
    description = ''
      RPC servers, each the service `llama-rpc-NAME`. Upstream: "Never run the RPC server on an open network"; it has no
      authentication and trusts what it is sent.
    '';
  };

  config = {
    assertions =
      lib.concatLists (
        lib.mapAttrsToList (
          name: instance: fabricService.known "nixwulf.llama-rpc.instances.${name}.fabric" instance.fabric
        ) instances
      )
      ++ lib.mapAttrsToList (address: names: {
        assertion = false;
        message = "${where}: the llama-rpc instances ${
          lib.concatMapStringsSep " and " (name: "'${name}'") names
        } both listen on ${address}; give one of them another port.";
      }) shared;

    systemd.services = lib.mapAttrs' (
      name: instance: lib.nameValuePair "llama-rpc-${name}" (service name instance)
    ) onFabric;

    services.udev.extraRules = lib.concatStrings (
      lib.mapAttrsToList (
        name: instance:
        fabricService.startedBy (fabricService.on instance.fabric) "llama-rpc-${name}.service"
      ) onFabric
    );

    nixwulf.fabric-firewall = lib.mkMerge (
      lib.mapAttrsToList (_: instance: {
        ${instance.fabric}.tcp = [ instance.port ];
      }) onFabric
    );
  };
}
