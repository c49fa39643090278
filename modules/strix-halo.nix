# AMD Strix Halo (Ryzen AI Max, gfx1151): one memory for CPU and GPU, and what it takes to use all of it.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixwulf.strix-halo;
  inherit (config.nixwulf.cluster) where;
  inherit (config.nixwulf.known-bad) kernelVersion;

  # ttm counts pages of 4 KiB.
  pagesPerGiB = 262144;
  systemGiB = 8;
  # The same for all platforms of this chip.
  platform = fromTOML (builtins.readFile ../driver/nixwulf/data/platforms/framework-desktop.toml);
  kernelFloor = platform.kernel_floor.value;

  # Also what somebody wrote into boot.kernelParams by hand; the kernel takes the last one.
  pageLimits = lib.concatMap (
    parameter:
    let
      value = builtins.match "ttm\\.pages_limit=([0-9]+)" parameter;
    in
    if value == null then [ ] else map lib.toIntBase10 value
  ) config.boot.kernelParams;
  leftGiB = pages: cfg.memoryGiB - pages / pagesPerGiB;

  # The driver reads the same file. What is no Thunderbolt is a card in the slot.
  kinds = fromTOML (builtins.readFile ../driver/nixwulf/data/fabric_kinds.toml);
  nicHost = lib.any (
    fabric: (kinds.${fabric.kind}.rdma or false) && kinds.${fabric.kind}.medium != "thunderbolt"
  ) (lib.attrValues config.nixwulf.fabrics);
in
{
  imports = [
    ./hpl.nix
    ./known-bad.nix
  ];

  options.nixwulf.strix-halo = {
    enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether this machine is a Strix Halo; its platforms set it.";
    };
    memoryGiB = mkOption {
      type = types.ints.positive;
      example = 128;
      description = ''
        The memory of the machine, GiB. Platforms set it from their facts; the boards are also sold with less.
      '';
    };
    gpuMemoryGiB = mkOption {
      type = types.ints.positive;
      default = cfg.memoryGiB - systemGiB;
      defaultText = lib.literalExpression "memoryGiB - 8";
      description = ''
        How much of the memory the GPU may have, GiB. It is a limit, not a reservation, and the kernel's own limit is
        half of the memory. This is `ttm.pages_limit`, and nothing else is needed: with it alone
        `mem_info_gtt_total` is the same number, and AMD advises against `amdgpu.gttsize`
        (https://github.com/antirez/ds4/pull/871). The firmware's own carve-out for the GPU comes on top, so set
        that to its minimum (512 MB).
      '';
    };
    iommu = mkOption {
      type = types.enum [
        "on"
        "pt"
        "off"
      ];
      default = "on";
      description = ''
        A choice to be made and recorded, because sources disagree. `off` (`amd_iommu=off`) was measured 5-12 % faster
        (https://github.com/kyuz0/amd-strix-halo-toolboxes/issues/66), about 6 % of memory bandwidth in a second
        measurement (https://github.com/lhl/strix-halo-testing/blob/main/llm-bench/README.md). But the XDNA NPU needs
        the IOMMU, and without it every Thunderbolt or USB4 peer can read and write all memory. `pt` (`iommu=pt`; the
        kernel does not know `amd_iommu=pt`) measured the same as `on` and is what guides for RDMA NICs use. Without `pt`
        RCCL prints a warning, `Missing "iommu=pt"`, and goes on.
      '';
    };
    rocm = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether to add ROCm's own tools: rocminfo and OpenCL. llama.cpp has ROCm without them, and Vulkan (RADV) stays
        its reference for right answers: ROCm was seen to corrupt the output of some dense models where Vulkan is right
        (https://github.com/ggml-org/llama.cpp/issues/27579).
      '';
    };
    rdmaNicHost = mkOption {
      type = types.bool;
      default = nicHost;
      defaultText = lib.literalMD "whether the node is on a `roce` or `infiniband` fabric";
      description = ''
        Whether a PCIe network card for RDMA is in the machine. It gets `pci=realloc pcie_aspm=off`, as in
        https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/rdma_cluster/setup_guide.md.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    nixwulf.known-bad.gpu = mkDefault "gfx1151";

    # nixpkgs' OpenBLAS is built without AVX-512, and without it Zen 5 has half of its multiply-adds. NB is that of AMD's own
    # HPL on this chip (https://github.com/geerlingguy/top500-benchmark/issues/93).
    nixwulf.hpl = {
      blas = mkDefault "amd-blis";
      nb = mkDefault 456;
    };

    boot = {
      kernelPackages = mkDefault pkgs.linuxPackages_latest;
      # Not modprobe options: ttm and amdgpu are loaded in the initrd.
      kernelParams = [
        "ttm.pages_limit=${toString (cfg.gpuMemoryGiB * pagesPerGiB)}"
      ]
      ++ {
        on = [ ];
        pt = [ "iommu=pt" ];
        off = [ "amd_iommu=off" ];
      }
      .${cfg.iommu}
      ++ lib.optionals cfg.rdmaNicHost [
        "pci=realloc"
        "pcie_aspm=off"
      ];
      # Its module lags behind the newest kernels and then cannot be built.
      supportedFilesystems.zfs = lib.mkForce false;
    };

    hardware = {
      enableRedistributableFirmware = true;
      graphics.enable = true;
      amdgpu.opencl.enable = cfg.rocm;
    };

    services.tuned = {
      enable = mkDefault true;
      # Its power-profiles-daemon would choose "balanced" over the profile below.
      ppdSupport = mkDefault false;
      recommend.accelerator-performance = mkDefault { };
    };

    environment.systemPackages = [
      pkgs.vulkan-tools
    ]
    ++ lib.optional cfg.rocm pkgs.rocmPackages.rocminfo;

    assertions = [
      {
        assertion = lib.all (pages: leftGiB pages >= systemGiB) pageLimits;
        message =
          "${where}: ttm.pages_limit=${toString (lib.foldl' lib.max 0 pageLimits)} leaves "
          + "${
            toString (leftGiB (lib.foldl' lib.max 0 pageLimits))
          } GiB of ${toString cfg.memoryGiB} to the system, "
          + "which needs ${toString systemGiB}; set nixwulf.strix-halo.gpuMemoryGiB to "
          + "${toString (cfg.memoryGiB - systemGiB)} or less.";
      }
      {
        assertion = lib.versionAtLeast kernelVersion kernelFloor;
        message =
          "${where}: kernel ${kernelVersion} is too old for Strix Halo, which needs ${kernelFloor}; "
          + "set boot.kernelPackages = pkgs.linuxPackages_latest.";
      }
    ];
  };
}
