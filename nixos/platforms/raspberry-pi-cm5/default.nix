# Raspberry Pi Compute Module 5, on carriers with an NVMe drive.
{ inputs }:
{
  config,
  lib,
  pkgs,
  ...
}:
{
  imports = [
    (inputs.nixos-hardware + "/raspberry-pi/5")
    ./firmware-boot.nix
  ];

  hardware.raspberry-pi.configtxt.settings.all = {
    # The NVMe drive hangs on the external PCIe link, which is off by default.
    dtparam = [ "pciex1" ];
    camera_auto_detect = false;
    display_auto_detect = false;
  };

  # The Pi's boot ROM finds FAT partitions of this type, and knows no EFI.
  nixwulf.disk = {
    bootMountPoint = "/boot/firmware";
    bootType = "0700";
  };

  # The initrd is built only of modules that exist, and the vendor's kernel has neither drivers of PCs nor tpm-crb
  # (https://github.com/NixOS/nixos-hardware/issues/2006). A Pi has no TPM.
  boot.initrd = {
    includeDefaultModules = lib.mkDefault false;
    systemd.tpm2.enable = lib.mkDefault false;
    availableKernelModules = [
      "mmc_block"
      "sd_mod"
      "uas"
    ];
  };
  assertions = [
    {
      assertion = !lib.elem "tpm-crb" config.boot.initrd.availableKernelModules;
      message = "${config.nixwulf.cluster.where}: the initrd asks for the module 'tpm-crb', which the Raspberry Pi's kernel does not have; set boot.initrd.systemd.tpm2.enable = false.";
    }
  ];

  # `vcgencmd get_throttled`: without a heat sink a module throttles, 275 instead of 325 Gflops
  # (https://github.com/geerlingguy/beowulf-ai-cluster).
  environment.systemPackages = [ pkgs.libraspberrypi ];
}
