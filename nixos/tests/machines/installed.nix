# A machine with an empty NVMe drive and UEFI. The node of the test is the installer that it boots first; the script's
# install() puts the node's own system on the drive, and from then on boot_from_disk() starts nothing but what is there.
#
# That system is what a cluster file makes, and has what a real node has. Nothing is added but the test driver's shell.
{
  lib,
  pkgs,
  nixwulf,
}:
{
  platform,
  modules ? [ ],
  memoryMiB ? 2048,
}:
{ config, name, ... }:
let
  inherit (config.virtualisation.test) nodeNumber;
  qemu = import (pkgs.path + "/nixos/lib/qemu-common.nix") { inherit (pkgs) lib stdenv; };

  serial = "NIXWULF-${name}";
  firmware = [
    "-drive if=pflash,format=raw,unit=0,readonly=on,file=${pkgs.OVMF.firmware}"
    "-drive if=pflash,format=raw,unit=1,file=efi-variables.fd"
  ];
  drive = [
    "-drive if=none,id=system,format=raw,file=system.raw"
    "-device nvme,drive=system,serial=${serial}"
  ];
  # In a slot of its own, so that the interface has one name: ens16.
  network = map (lib.replaceString "virtio-net-pci," "virtio-net-pci,addr=0x10,") (
    qemu.qemuNICFlags 1 1 nodeNumber
  );

  system = lib.nixosSystem {
    modules =
      lib.attrValues nixwulf.nixosModules
      ++ [
        nixwulf.platforms.${platform}
        (pkgs.path + "/nixos/modules/testing/test-instrumentation.nix")
        {
          nixpkgs.pkgs = pkgs;
          networking.hostName = name;
          # The tests' own modules give their machines the kernel's names.
          networking.usePredictableInterfaceNames = lib.mkForce true;
          nixwulf = {
            cluster = { inherit (config.nixwulf.cluster) nodes sshKeys; };
            disk.device = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_${serial}";
            fabrics.switch = config.nixwulf.fabrics.switch // {
              interface = "ens16";
            };
          };
        }
      ]
      ++ modules;
  };
in
{
  virtualisation = {
    qemu.options = firmware ++ drive;
    memorySize = memoryMiB;
  };
  # Without a network, all that is installed has to be there.
  virtualisation.additionalPaths = [
    system.config.system.build.diskoScript
    system.config.system.build.toplevel
  ];

  system.build.installed = {
    inherit (system) config;
    inherit (system) extendModules;
    # What the script's functions need of it.
    facts = {
      variables = pkgs.OVMF.variables;
      disko = system.config.system.build.diskoScript;
      toplevel = system.config.system.build.toplevel;
      install = lib.getExe config.system.build.nixos-install;
      start = lib.concatStringsSep " " (
        [
          "exec ${pkgs.qemu_test}/bin/qemu-kvm -machine accel=kvm:tcg -cpu max -m ${toString memoryMiB}"
        ]
        ++ firmware
        ++ drive
        ++ network
      );
    };
  };
}
