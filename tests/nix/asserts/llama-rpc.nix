{ lib, evaluate, ... }:
let
  config = evaluate [
    {
      nixwulf.fabrics.cable = {
        kind = "usb4-rdma";
        interface = "thunderbolt0";
        address = "10.10.0.1";
        prefixLength = 24;
        mtu = 9000;
        speedGbps = 40;
        rdmaDevice = "usb4_rdma0";
        gidIndex = 1;
      };
      nixwulf.fabrics.office = {
        kind = "ethernet";
        interface = "enp1s0";
        address = "192.168.1.31";
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 2.5;
      };
      nixwulf.llama-rpc.instances = {
        office.fabric = "office";
        tcp = {
          fabric = "cable";
          port = 50054;
          environment.GGML_RDMA_DEV = "none";
        };
        gpu = {
          fabric = "cable";
          backend = "vulkan";
          device = "Vulkan0";
        };
        cpu = {
          fabric = "cable";
          port = 50053;
          threads = 8;
          cache = false;
          environment.GGML_RPC_DEBUG = "1";
        };
        off = {
          enable = false;
          fabric = "cable";
        };
      };
    }
  ];
  gpu = config.systemd.services.llama-rpc-gpu;
  cpu = config.systemd.services.llama-rpc-cpu;
  arguments =
    service: lib.tail (lib.splitString " " (lib.replaceString "\"" "" service.serviceConfig.ExecStart));
  inherit (config.networking) firewall;
in
{
  "it listens on the fabric's address, with the device and the cache asked for" = {
    expected = [
      "--host"
      "10.10.0.1"
      "--port"
      "50052"
      "--device"
      "Vulkan0"
      "--cache"
    ];
    actual = arguments gpu;
  };
  "threads are passed, and a cache that is off is not" = {
    expected = [
      "--host"
      "10.10.0.1"
      "--port"
      "50053"
      "--threads"
      "8"
    ];
    actual = arguments cpu;
  };
  "the backend picks the build" = {
    expected = [
      [ "vulkan" ]
      [ "cpu" ]
    ];
    actual = map (name: config.nixwulf.llama-rpc.instances.${name}.package.backends) [
      "gpu"
      "cpu"
    ];
  };
  "the ports are open to the nodes of their fabrics" = {
    expected = {
      cable = [
        50054
        50052
        50053
        # perftest's, because the fabric has RDMA.
        18515
      ];
      office = [ 50052 ];
    };
    actual = lib.mapAttrs (_: open: open.tcp) config.nixwulf.fabric-firewall;
  };
  "the ports are open nowhere else" = {
    expected = {
      everywhere = [ ];
      interfaces = { };
      trusted = [ "lo" ];
    };
    actual = {
      everywhere = lib.intersectLists [ 50052 50053 50054 ] firewall.allowedTCPPorts;
      interfaces = lib.mapAttrs (_: open: open.allowedTCPPorts) firewall.interfaces;
      trusted = firewall.trustedInterfaces;
    };
  };
  "the kernel drops packets of everybody but the nodes on its fabric" = {
    expected = {
      IPAddressDeny = "any";
      IPAddressAllow = [
        "10.10.0.1"
        "10.10.0.1/24"
      ];
    };
    actual = lib.getAttrs [
      "IPAddressAllow"
      "IPAddressDeny"
    ] gpu.serviceConfig;
  };
  "a udev rule starts it, also where the interface was up in the initrd" = {
    expected = [
      "cpu"
      "gpu"
      "tcp"
    ];
    actual = lib.filter (
      name:
      lib.hasInfix "SUBSYSTEM==\"net\", KERNEL==\"thunderbolt0\", TAG+=\"systemd\", ENV{SYSTEMD_WANTS}+=\"llama-rpc-${name}.service\"\n" config.services.udev.extraRules
    ) (lib.attrNames config.nixwulf.llama-rpc.instances);
  };
  "it lives and dies with the interface, and no boot waits for it" = {
    expected = {
      bindsTo = [ "sys-subsystem-net-devices-thunderbolt0.device" ];
      wantedBy = [ ];
      Restart = "always";
      startLimitIntervalSec = 0;
    };
    actual = {
      inherit (gpu) bindsTo wantedBy startLimitIntervalSec;
      inherit (gpu.serviceConfig) Restart;
    };
  };
  "memory may be locked, which RDMA needs" = {
    expected = true;
    actual = lib.hasInfix "LimitMEMLOCK=infinity" config.systemd.units."llama-rpc-gpu.service".text;
  };
  "RDMA uses the fabric's device and GID" = {
    expected = [
      "usb4_rdma0"
      "1"
    ];
    actual = [
      gpu.environment.GGML_RDMA_DEV
      gpu.environment.GGML_RDMA_GID
    ];
  };
  "no device is taken where the fabric has none, or the instance is for TCP" = {
    expected = [
      "none"
      "none"
    ];
    actual = map (name: config.systemd.services."llama-rpc-${name}".environment.GGML_RDMA_DEV) [
      "office"
      "tcp"
    ];
  };
  "it is nobody, may do nothing and write nowhere" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line config.systemd.units."llama-rpc-gpu.service".text) [
      "DynamicUser=true"
      "CapabilityBoundingSet=\n"
      "NoNewPrivileges=true"
      "PrivateTmp=true"
      "PrivateUsers=true"
      "LimitCORE=0"
      "SystemCallFilter=@system-service"
      "ProtectSystem=strict"
      "DevicePolicy=closed"
      "RestrictAddressFamilies=AF_INET\n"
    ];
  };
  "only a GPU's driver may write what it executes, and only its devices are open" = {
    expected = [
      false
      [
        "char-drm"
        "char-nvidia*"
        "char-infiniband*"
      ]
      true
      [ "char-infiniband*" ]
    ];
    actual =
      lib.concatMap
        (service: [
          service.serviceConfig.MemoryDenyWriteExecute
          service.serviceConfig.DeviceAllow
        ])
        [
          gpu
          cpu
        ];
  };
  "more environment is added" = {
    expected = "1";
    actual = cpu.environment.GGML_RPC_DEBUG;
  };
  "an instance that is off has no service" = {
    expected = false;
    actual = config.systemd.services ? llama-rpc-off;
  };
}
