# Each node has the llama.cpp that its platform's GPU needs, and its RPC servers are the same build.
{ lib, outputs, ... }:
let
  backends = [
    "CUDA"
    "HIP"
    "METAL"
    "VULKAN"
  ];
  backendsOf =
    package: lib.filter (name: lib.elem "-DGGML_${name}:BOOL=TRUE" package.cmakeFlags) backends;

  # platform -> the systems of the example clusters' nodes on it.
  systems = outputs.nixosConfigurations // outputs.darwinConfigurations;
  systemsOf = lib.zipAttrs (
    lib.concatLists (
      lib.mapAttrsToList (
        cluster: inventory:
        lib.concatMap (
          node:
          let
            name = "${cluster}-${node.name}";
          in
          lib.optional (systems ? ${name}) { ${node.platform} = systems.${name}; }
        ) inventory.nodes
      ) outputs.lib.inventories
    )
  );
  onPath =
    system:
    lib.filter (package: lib.getName package == "llama-cpp") system.config.environment.systemPackages;

  # A node of a platform with RPC servers, by the name of their instance.
  serving =
    platform: instances:
    let
      system = lib.head systemsOf.${platform};
      fabric = lib.head (lib.attrNames system.config.nixwulf.fabrics);
      inherit
        (system.extendModules {
          modules = [
            {
              nixwulf.llama-rpc.instances = lib.mapAttrs (_: instance: instance // { inherit fabric; }) instances;
            }
          ];
        })
        config
        ;
      own = lib.findSingle (
        package: lib.getName package == "llama-cpp"
      ) null null config.environment.systemPackages;
    in
    lib.mapAttrs (
      name: _:
      let
        command = lib.splitString " " (
          lib.replaceString "\"" "" config.systemd.services."llama-rpc-${name}".serviceConfig.ExecStart
        );
        device = lib.lists.findFirstIndex (word: word == "--device") null command;
      in
      {
        own = lib.head command == lib.getExe' own "llama-rpc-server";
        device = if device == null then null else lib.elemAt command (device + 1);
        opens = lib.filter (
          kind: kind != "char-infiniband*"
        ) config.systemd.services."llama-rpc-${name}".serviceConfig.DeviceAllow;
      }
    ) instances;

  strixHalo = {
    default = {
      own = true;
      device = "Vulkan0";
      opens = [
        "char-drm"
        "char-nvidia*"
      ];
    };
    rocm = {
      own = true;
      device = "ROCm0";
      opens = [
        "char-drm"
        "char-kfd"
      ];
    };
  };
  strixHaloServers =
    platform:
    serving platform {
      default = { };
      rocm = {
        backend = "rocm";
        port = 50062;
      };
    };
in
{
  "every node of a platform with a GPU computes on it, and no other node asks for one" = {
    expected = {
      dgx-spark = [ [ "CUDA" ] ];
      fevm-fa-ex9 = [
        [
          "HIP"
          "VULKAN"
        ]
      ];
      framework-desktop = [
        [
          "HIP"
          "VULKAN"
        ]
      ];
      generic-x86_64 = [ [ ] ];
      mac-studio-m3-ultra = [ [ "METAL" ] ];
      minisforum-ms-s1-max = [
        [
          "HIP"
          "VULKAN"
        ]
      ];
      raspberry-pi-cm5 = [ [ ] ];
    };
    actual = lib.mapAttrs (
      _: systems: lib.unique (lib.concatMap (system: map backendsOf (onPath system)) systems)
    ) systemsOf;
  };
  "every node has one llama.cpp on PATH" = {
    expected = [ 1 ];
    actual = lib.unique (map (system: lib.length (onPath system)) (lib.attrValues systems));
  };
  "an RPC server on Strix Halo is the node's own build, by Vulkan unless asked for ROCm" = {
    expected = lib.genAttrs [ "fevm-fa-ex9" "framework-desktop" "minisforum-ms-s1-max" ] (_: strixHalo);
    actual = lib.genAttrs [
      "fevm-fa-ex9"
      "framework-desktop"
      "minisforum-ms-s1-max"
    ] strixHaloServers;
  };
  "an RPC server on a Spark is the node's own build, on its GPU and never on the CPU" = {
    expected.default = {
      own = true;
      device = "CUDA0";
      opens = [ "char-nvidia*" ];
    };
    actual = serving "dgx-spark" { default = { }; };
  };
  "an RPC server on a PC is the node's own build, on the CPU" = {
    expected.default = {
      own = true;
      device = null;
      opens = [ ];
    };
    actual = serving "generic-x86_64" { default = { }; };
  };
}
