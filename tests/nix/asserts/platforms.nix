{
  lib,
  nixwulf,
  outputs,
  ...
}:
let
  nixos = name: outputs.nixosConfigurations.${name}.config;
  has = wanted: list: lib.all (one: lib.elem one list) wanted;

  generic = nixos "mini-3-mini1";
  spark = nixos "dgx-spark-2-spark1";
  blade = nixos "pi-cm5-4-blade1";
  mac = outputs.darwinConfigurations.mac-studio-4-mac-a.config;
  configtxt = blade.hardware.raspberry-pi.configtxt.settings.all;
in
{
  "a generic PC boots from what a mini PC has, with microcode of either maker" = {
    expected = true;
    actual =
      has [ "nvme" "sdhci_pci" "ahci" ] generic.boot.initrd.availableKernelModules
      && generic.hardware.cpu.intel.updateMicrocode
      && generic.hardware.cpu.amd.updateMicrocode;
  };

  "a Spark runs NVIDIA's kernel, with autonomous CPPC" = {
    expected = true;
    actual =
      lib.hasSuffix "-nvidia" spark.boot.kernelPackages.kernel.version
      && has [ "cppc_cpufreq.auto_sel_mode=1" ] spark.boot.kernelParams;
  };
  "a Spark has the open driver, and none that takes its devices" = {
    expected = true;
    actual =
      spark.hardware.nvidia.open
      && has [
        "nouveau"
        "r8169"
      ] spark.boot.blacklistedKernelModules;
  };
  "a Spark and its installer take CUDA from the cache of the Spark's module, and NixOS from its own" =
    let
      caches = [
        "https://cache.flox.dev"
        "https://cache.nixos.org/"
      ];
    in
    {
      expected = [
        caches
        caches
      ];
      actual =
        map (config: lib.naturalSort (lib.intersectLists caches config.nix.settings.substituters))
          [
            spark
            (nixwulf.cluster.installer {
              platform = "dgx-spark";
              sshKeys = [ ];
            }).config
          ];
    };
  "a Spark's vLLM leaves the system more memory than its default" = {
    expected = 0.76;
    actual = spark.nixwulf.vllm.gpuMemoryUtilization;
  };
  "a Spark has nothing that polls its GPU, nor a socket that makes root" = {
    expected = [
      false
      false
    ];
    actual = [
      spark.services.dgx-dashboard.enable
      spark.virtualisation.podman.dockerSocket.enable
    ];
  };
  "both MACs of a Spark's cable have an address and jumbo frames" = {
    expected = {
      "20-qsfp-a" = [
        "enp1s0f0np0"
        "10.100.1.1/24"
        "9000"
      ];
      "20-qsfp-b" = [
        "enP2p1s0f0np0"
        "10.100.2.1/24"
        "9000"
      ];
    };
    actual = lib.mapAttrs (
      _: network: [ network.matchConfig.Name ] ++ network.address ++ [ network.linkConfig.MTUBytes ]
    ) (lib.filterAttrs (name: _: lib.hasPrefix "20-" name) spark.systemd.network.networks);
  };

  "a blade's kernel is installed on the partition that its firmware reads" = {
    expected = {
      external = true;
      extlinux = false;
      mounted = true;
    };
    actual = {
      external = blade.boot.loader.external.enable;
      extlinux = blade.boot.loader.generic-extlinux-compatible.enable;
      mounted = blade.fileSystems ? "/boot/firmware";
    };
  };
  "a blade's partition has a type that its boot ROM takes" = {
    expected = "0700";
    actual = blade.disko.devices.disk.system.content.partitions.boot.type;
  };
  "a blade's NVMe link is on, and no U-Boot is in the way" = {
    expected = {
      dtparam = [ "pciex1" ];
      kernel = false;
    };
    actual = {
      inherit (configtxt) dtparam;
      kernel = configtxt ? kernel;
    };
  };

  "a Mac lets in the cluster's keys as the user that the cluster file names, and no password" = {
    expected = {
      users = [ "admin" ];
      passwords = true;
    };
    actual = {
      users = lib.attrNames (
        lib.filterAttrs (_: user: user.openssh.authorizedKeys.keys != [ ]) mac.users.users
      );
      passwords = lib.hasInfix "PasswordAuthentication no" mac.services.openssh.extraConfig;
    };
  };
  "a Mac never sleeps, and its GPU may wire all but 16 GiB" = {
    expected = {
      sleep = "never";
      atBoot = true;
      arithmetic = true;
    };
    actual = {
      sleep = mac.power.sleep.computer;
      atBoot = mac.launchd.daemons.nixwulf-wired-limit.serviceConfig.RunAtLoad;
      arithmetic = lib.hasInfix "memory / 1048576 - 16 * 1024" mac.launchd.daemons.nixwulf-wired-limit.script;
    };
  };
  "a Mac has the check of what only recovery mode can set" = {
    expected = true;
    actual = lib.any (package: package.name == "nixwulf-rdma-check") mac.environment.systemPackages;
  };

}
