{
  lib,
  pkgs,
  evaluate,
  failures,
  ...
}:
let
  worker =
    settings:
    evaluate [
      {
        nixwulf.fabrics.switch = {
          kind = "ethernet";
          interface = "end0";
          address = "192.168.1.41";
          prefixLength = 24;
          mtu = 1500;
          speedGbps = 1;
        };
        nixwulf.distributed-llama = {
          enable = true;
          fabric = "switch";
        }
        // settings;
      }
    ];
  package = pkgs.writeShellScriptBin "dllama" "";
  config = worker { inherit package; };
  onGpu = worker {
    gpuIndex = 1;
    inherit package;
  };
  gpuService = onGpu.systemd.services.distributed-llama;
  arguments =
    config:
    lib.removePrefix (toString config.nixwulf.distributed-llama.package) (
      lib.replaceString "\"" "" config.systemd.services.distributed-llama.serviceConfig.ExecStart
    );
  refusals =
    package:
    let
      refused = worker {
        gpuIndex = 0;
        inherit package;
      };
    in
    lib.filter (lib.hasInfix "built without Vulkan") (failures refused);
  service = config.systemd.services.distributed-llama;
  inherit (config.systemd.units."distributed-llama.service") text;
  inherit (config.networking) firewall;
in
{
  "the worker listens on the fabric's address, with a thread a core" = {
    expected = "/bin/dllama worker --host 192.168.1.41 --port 9999 --nthreads 4";
    actual = arguments config;
  };
  "with a GPU it has one thread, the GPU's index, its devices and a cache for shaders" = {
    expected = {
      arguments = "/bin/dllama worker --host 192.168.1.41 --port 9999 --nthreads 1 --gpu-index 1";
      cache = "/var/cache/distributed-llama";
      closed = false;
      drm = true;
      graphics = true;
    };
    actual = {
      arguments = arguments onGpu;
      cache = gpuService.environment.XDG_CACHE_HOME;
      closed = gpuService.serviceConfig.MemoryDenyWriteExecute;
      drm = lib.elem "char-drm" gpuService.serviceConfig.DeviceAllow;
      graphics = onGpu.hardware.graphics.enable;
    };
  };
  "on the CPU it may open no device" = {
    expected = [ ];
    actual = service.serviceConfig.DeviceAllow;
  };
  "a build without Vulkan is refused for a GPU, and one with it is the default then" = {
    expected = {
      chosen = true;
      refused = 1;
      taken = 0;
    };
    actual = {
      chosen = (worker { gpuIndex = 0; }).nixwulf.distributed-llama.package.vulkanSupport;
      refused = lib.length (refusals pkgs.distributed-llama);
      taken = lib.length (refusals pkgs.distributed-llama-vulkan);
    };
  };
  "the port is open to the nodes of the fabric and to nobody else" = {
    expected = {
      nodes.switch = {
        tcp = [ 9999 ];
        ipv6 = false;
        udp = [ ];
      };
      everywhere = false;
      interfaces = [ ];
    };
    actual = {
      nodes = config.nixwulf.fabric-firewall;
      everywhere = lib.elem 9999 firewall.allowedTCPPorts;
      interfaces = lib.attrNames firewall.interfaces;
    };
  };
  "the interface's appearance starts it" = {
    expected = true;
    actual = lib.hasInfix "KERNEL==\"end0\", TAG+=\"systemd\", ENV{SYSTEMD_WANTS}+=\"distributed-llama.service\"" config.services.udev.extraRules;
  };
  "it is nobody, and is started again whenever it ends" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line text) [
      "DynamicUser=true"
      "ProtectSystem=strict"
      "MemoryDenyWriteExecute=true"
      "Restart=always"
      "BindsTo=sys-subsystem-net-devices-end0.device"
    ];
  };
}
