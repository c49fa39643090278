{
  evaluate,
  lib,
  outputs,
  ...
}:
let
  tuned = evaluate [
    {
      nixwulf.strix-halo = {
        enable = true;
        memoryGiB = 64;
        gpuMemoryGiB = 48;
        iommu = "off";
        rdmaNicHost = true;
        rocm = true;
      };
    }
  ];
  framework = outputs.nixosConfigurations.framework-2-fw1.config;

  of = prefix: config: lib.filter (lib.hasPrefix prefix) config.boot.kernelParams;
  names = config: map lib.getName config.environment.systemPackages;
in
{
  "the GPU may have all of the platform's memory but 8 GiB" = {
    expected = [ "ttm.pages_limit=31457280" ];
    actual = of "ttm." framework;
  };
  "a limit in GiB becomes pages of 4 KiB" = {
    expected = [ "ttm.pages_limit=12582912" ];
    actual = of "ttm." tuned;
  };
  "amdgpu.gttsize is not set beside it" = {
    expected = [ ];
    actual = of "amdgpu.gttsize" framework;
  };
  "the IOMMU is left on unless somebody chooses" = {
    expected = [ ];
    actual = of "iommu" framework ++ of "amd_iommu" framework;
  };
  "off is a parameter that the kernel knows" = {
    expected = [ "amd_iommu=off" ];
    actual = of "amd_iommu" tuned;
  };
  "a host of an RDMA card has its PCIe parameters, others do not" = {
    expected = [
      [
        "pci=realloc"
        "pcie_aspm=off"
      ]
      [ ]
    ];
    actual = map (of "pci") [
      tuned
      framework
    ];
  };
  "tuned takes the accelerator's profile, and no other daemon takes it back" = {
    expected = [
      true
      [ "accelerator-performance" ]
      false
    ];
    actual = [
      framework.services.tuned.enable
      (lib.attrNames framework.services.tuned.recommend)
      framework.services.tuned.ppdSupport
    ];
  };
  "the GPU's driver is loaded in the initrd, with its firmware" = {
    expected = [
      true
      true
      true
    ];
    actual = [
      (lib.elem "amdgpu" framework.boot.initrd.kernelModules)
      framework.hardware.enableRedistributableFirmware
      framework.hardware.graphics.enable
    ];
  };
  "ROCm's own tools come when they are asked for" = {
    expected = [
      true
      false
    ];
    actual = map (config: lib.elem "rocminfo" (names config)) [
      tuned
      framework
    ];
  };
  "the kernel is not older than the floor" = {
    expected = true;
    actual = lib.versionAtLeast framework.boot.kernelPackages.kernel.version "6.19";
  };
  "it boots by UEFI" = {
    expected = true;
    actual = framework.boot.loader.systemd-boot.enable;
  };
}
