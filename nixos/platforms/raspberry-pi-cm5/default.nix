# Raspberry Pi Compute Module 5, on carriers with an NVMe drive.
{ inputs }:
{ pkgs, ... }:
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

  # `vcgencmd get_throttled`: without a heat sink a module throttles, 275 instead of 325 Gflops
  # (https://github.com/geerlingguy/beowulf-ai-cluster).
  environment.systemPackages = [ pkgs.libraspberrypi ];
}
