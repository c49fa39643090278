{
  lib,
  nixwulf,
  outputs,
  pkgs,
  failures,
  ...
}:
let
  # A system of somebody's own: no platform, no cluster file.
  system =
    nixpkgs: modules:
    (lib.nixosSystem {
      modules = modules ++ [
        {
          inherit nixpkgs;
          networking.hostName = "own";
          fileSystems."/" = lib.mapAttrs (_: lib.mkDefault) {
            device = "/dev/vda";
            fsType = "ext4";
          };
          boot.loader.grub.device = "/dev/vda";
          system.stateVersion = lib.trivial.release;
        }
      ];
    }).config;

  fabric.nixwulf.fabrics.cable = {
    kind = "usb4-rdma";
    interface = "thunderbolt0";
    address = "10.0.0.1";
    prefixLength = 24;
    mtu = 1500;
    speedGbps = 10;
    rdmaDevice = "usb4_rdma0";
    gidIndex = 1;
  };
  # What turns each on, where that is more than to be there.
  settings = {
    bench-node.nixwulf.cluster.sshKeys = [ "ssh-ed25519 AAAA own" ];
    disk.nixwulf.disk.device = "/dev/disk/by-id/own";
    distributed-llama.nixwulf.distributed-llama = {
      enable = true;
      fabric = "cable";
    };
    hostname-guard.nixwulf.hostname-guard.enable = true;
    hpl.nixwulf.hpl = {
      enable = true;
      fabric = "cable";
      memoryGiB = 8;
    };
    llama-rpc.nixwulf.llama-rpc.instances.cpu.fabric = "cable";
    power-meter.nixwulf.power-meter.enable = true;
    rdma.nixwulf.rdma.enable = true;
    thunderbolt-net.nixwulf.thunderbolt-net.enable = true;
  };

  alone =
    name: module:
    let
      # One nixpkgs for all of them: to instantiate it costs more than the rest of such a system.
      config = system { inherit pkgs; } [
        module
        (settings.${name} or { })
        # No fabric where no option of it is.
        (lib.optionalAttrs (
          !lib.elem name [
            "disk"
            "unattended"
          ]
        ) fabric)
      ];
    in
    {
      failures = failures config;
      units = lib.all (unit: unit.text != "") (lib.attrValues config.systemd.units);
      firewall = config.networking.firewall.extraCommands != null;
      packages = lib.all (package: package.drvPath != "") config.environment.systemPackages;
    };

  all = system { hostPlatform = "x86_64-linux"; } [ outputs.nixosModules.default ];

  mine = nixwulf.cluster.nodesOf {
    nixpkgs = {
      config.allowUnfreePackages = [ "own" ];
      overlays = [ (_: _: { own = "own"; }) ];
    };
  } (nixwulf.inventory.checked ../../../clusters/mini-3.toml);
  packages = mine.nixosConfigurations.mini-3-mini1.pkgs;
in
{
  "each module is a system's with nothing of this flake but the overlay" = {
    expected = lib.mapAttrs (_: _: {
      failures = [ ];
      units = true;
      firewall = true;
      packages = true;
    }) nixwulf.nixosModules;
    actual = lib.mapAttrs alone nixwulf.nixosModules;
  };
  "all modules, and those that they import, are one module with its packages" = {
    expected = [ ];
    actual = failures all;
  };
  "a user's nixpkgs comes on top of what this flake's packages need" = {
    expected = {
      own = "own";
      allowed = [
        true
        true
      ];
      packaged = true;
    };
    actual = {
      inherit (packages) own;
      allowed = map (name: lib.elem name packages.config.allowUnfreePackages) [
        "own"
        "cuda_nvcc"
      ];
      packaged = packages ? nixwulf-llama-cpp-cpu;
    };
  };
}
