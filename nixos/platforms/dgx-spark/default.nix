# NVIDIA DGX Spark and other GB10 machines, by the module that Spark owners maintain.
{ inputs, facts }:
{ config, lib, ... }:
{
  imports = [ (inputs.nixos-dgx-spark + "/modules/dgx-spark.nix") ];

  hardware.dgx-spark.enable = true;
  nixwulf.vllm.gpuMemoryCeiling = lib.mkDefault facts.gpu_memory_fraction.value;

  # In nixpkgs.nix beside this file: a module cannot configure a nixpkgs that is already made.
  nixpkgs.config = lib.mkForce { };
  nixpkgs.overlays = lib.mkForce [ ];

  # The module's cache of CUDA, where an installation by nixos-anywhere looks too: it reads `substituters` only.
  nix.settings = {
    substituters = config.nix.settings.extra-substituters;
    trusted-public-keys = config.nix.settings.extra-trusted-public-keys;
  };

  # It polls the GPU all the time, also during a run.
  services.dgx-dashboard.enable = lib.mkForce false;
  # Whoever may write to it is root.
  virtualisation.podman.dockerSocket.enable = lib.mkForce false;
  # Firmware changes what is measured; `lib.mkOverride 80 true` where it is to be updated from NixOS.
  services.fwupd.enable = lib.mkOverride 90 false;

  boot = {
    loader.systemd-boot.enable = lib.mkDefault true;
    loader.efi.canTouchEfiVariables = lib.mkDefault true;
    # Of NVIDIA's kernel, whose configuration is not nixpkgs': what its USB sticks boot with
    # (https://github.com/graham33/nixos-dgx-spark/blob/main/usb-configuration-base.nix).
    initrd.includeDefaultModules = lib.mkDefault false;
    initrd.availableKernelModules = [
      "hid_generic"
      "nvme"
      "sd_mod"
      "uas"
      "usb_storage"
      "usbhid"
      "xhci_pci"
      "xhci_plat_hcd"
    ];
  };
}
