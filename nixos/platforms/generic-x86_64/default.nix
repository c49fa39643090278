# N100, N150 and any other PC that boots by UEFI.
{ lib, modulesPath, ... }:
{
  imports = [ "${modulesPath}/installer/scan/not-detected.nix" ];

  boot = {
    loader.systemd-boot.enable = lib.mkDefault true;
    loader.efi.canTouchEfiVariables = lib.mkDefault true;
    initrd.availableKernelModules = [
      "ahci"
      # Disks of Hyper-V.
      "hv_storvsc"
      "nvme"
      "sd_mod"
      # Mini PCs with eMMC.
      "sdhci_acpi"
      "sdhci_pci"
      "uas"
      "usb_storage"
      # Disks of KVM and of what is like it.
      "virtio_blk"
      "virtio_pci"
      "virtio_scsi"
      # NVMe drives of a firmware that is set to Intel's RST.
      "vmd"
      "xhci_pci"
    ];
  };

  # Which of the two it is, is not known here; a CPU takes only its own.
  hardware.cpu.amd.updateMicrocode = lib.mkDefault true;
  hardware.cpu.intel.updateMicrocode = lib.mkDefault true;
}
