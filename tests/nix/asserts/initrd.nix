# The initrd is built only if the platform's kernel has each module that it asks for (nixpkgs' modules-closure.sh). No
# kernel is built here, so that what is asked for is compared with what is known of each kernel.
{
  lib,
  failures,
  nixwulf,
  outputs,
  ...
}:
let
  node = name: outputs.nixosConfigurations.${name}.config;
  installer =
    platform:
    (nixwulf.cluster.installer {
      inherit platform;
      sshKeys = [ ];
    }).config;
  asked =
    config:
    lib.unique (
      map (lib.replaceString "-" "_") (
        config.boot.initrd.availableKernelModules ++ config.boot.initrd.kernelModules
      )
    );
  seriesOf = config: lib.versions.majorMinor config.boot.kernelPackages.kernel.version;

  # What Debian's kernel has: tools/fixtures/kernels.py makes the list. nixpkgs' is configured with more modules.
  debian = lib.splitString "\n" (
    lib.trim (builtins.readFile ../../fixtures/kernels/debian-7.2.12-amd64.txt)
  );
  unknownToPC = lib.subtractLists debian;

  # No list of linux-rpi's modules exists before it is built, so that only these are accepted.
  # `y`, `m`: arch/arm64/configs/bcm2712_defconfig at https://github.com/raspberrypi/linux/commit/00527380ab0ac773d616d1056901948303b332cb
  # `order`: modules.order of the vendor's own 6.18.39 build, https://github.com/raspberrypi/firmware/commit/78e81e2cd6e00efeb79c169bff29ec457fa14b11
  # `default`: no line in either, because it is built in without being asked for.
  pi = {
    autofs = "y: AUTOFS_FS";
    clk_rp1 = "y: COMMON_CLK_RP1";
    efivarfs = "order";
    ext2 = "y: EXT4_FS, whose alias it is, or a module of its own";
    ext4 = "y: EXT4_FS";
    mmc_block = "default: MMC_BLOCK, of which the file has MMC_BLOCK_MINORS";
    nvme = "y: BLK_DEV_NVME";
    pcie_brcmstb = "default: PCIE_BRCMSTB";
    rp1 = "y: MFD_RP1";
    sd_mod = "y: BLK_DEV_SD";
    uas = "y: USB_UAS";
    usb_storage = "y: USB_STORAGE";
    usbhid = "default: USB_HID, of which the file has USB_HIDDEV";
    vc4 = "m: DRM_VC4, and order";
  };
  unknownToPi = lib.subtractLists (lib.attrNames pi);

  # The symbols that a module needs, looked up in the configuration that the Spark's kernel is built with. It is
  # nixpkgs' with 2,424 changes by force; a symbol that neither names becomes a module wherever it can be one.
  spark = {
    autofs = [ "AUTOFS_FS" ];
    efivarfs = [ "EFIVAR_FS" ];
    ext2 = [ "EXT4_USE_FOR_EXT2" ];
    ext4 = [ "EXT4_FS" ];
    hid_generic = [ "HID_GENERIC" ];
    iso9660 = [ "ISO9660_FS" ];
    loop = [ "BLK_DEV_LOOP" ];
    nls_cp437 = [ "NLS_CODEPAGE_437" ];
    nls_iso8859_1 = [ "NLS_ISO8859_1" ];
    nvme = [ "BLK_DEV_NVME" ];
    overlay = [ "OVERLAY_FS" ];
    pata_pcmcia = [
      "PCMCIA"
      "PATA_PCMCIA"
    ];
    sd_mod = [ "BLK_DEV_SD" ];
    squashfs = [ "SQUASHFS" ];
    tpm_crb = [ "TCG_CRB" ];
    tpm_tis = [ "TCG_TIS" ];
    uas = [ "USB_UAS" ];
    usb_storage = [ "USB_STORAGE" ];
    usbhid = [ "USB_HID" ];
    vfat = [ "VFAT_FS" ];
    xhci_pci = [ "USB_XHCI_PCI" ];
    xhci_plat_hcd = [ "USB_XHCI_PLATFORM" ];
  };
  sparkNode = node "dgx-spark-2-spark1";
  sparkKernel = sparkNode.boot.kernelPackages.kernel.configfile.structuredConfig;
  unknownToSpark = lib.filter (
    name:
    !spark ? ${name} || lib.any (symbol: (sparkKernel.${symbol}.tristate or null) == "n") spark.${name}
  );

  blade = outputs.nixosConfigurations.pi-cm5-4-blade1;
  bladeWithTpm =
    (blade.extendModules {
      modules = [ { boot.initrd.systemd.tpm2.enable = true; } ];
    }).config;
in
{
  "a PC's initrd asks for modules that mainline has" = {
    expected = [ ];
    actual = lib.concatMap (name: unknownToPC (asked (node name))) [
      "framework-2-fw1"
      "mini-3-mini1"
      "ms-s1-max-4-ms1"
    ];
  };
  # Of the disks that were found by the installer alone at first, and of which the installed system did not boot.
  "what an installer finds a PC's disk with, the installed system has" = {
    expected = [ ];
    actual = lib.subtractLists (asked (node "mini-3-mini1")) (
      lib.intersectLists (asked (installer "generic-x86_64")) [
        "hv_storvsc"
        "sdhci_acpi"
        "virtio_blk"
        "virtio_scsi"
        "vmd"
      ]
    );
  };
  "a blade's initrd, and its installer's, ask for what the Pi's kernel is known to have" = {
    expected = {
      node = [ ];
      installer = [ ];
    };
    actual = {
      node = unknownToPi (asked blade.config);
      installer = unknownToPi (asked (installer "raspberry-pi-cm5"));
    };
  };
  "a Spark's initrd, and its installer's, ask for what its kernel is configured with" = {
    expected = {
      node = [ ];
      installer = [ ];
    };
    actual = {
      node = unknownToSpark (asked sparkNode);
      installer = unknownToSpark (asked (installer "dgx-spark"));
    };
  };
  "what is known is of the kernels that are built" = {
    expected = [
      "6.18"
      "6.17"
    ];
    actual = map seriesOf [
      blade.config
      sparkNode
    ];
  };
  "the modules that stopped a Pi's and a Spark's image would be found" = {
    expected = {
      pi = [ "tpm_crb" ];
      spark = [ "pata_pcmcia" ];
    };
    actual = {
      pi = unknownToPi [ "tpm_crb" ];
      spark = unknownToSpark [ "pata_pcmcia" ];
    };
  };
  "a blade with a TPM's driver in its initrd is refused with what to set" = {
    expected = [
      "clusters/pi-cm5-4.toml: node 'blade1': the initrd asks for the module 'tpm-crb', which the Raspberry Pi's kernel does not have; set boot.initrd.systemd.tpm2.enable = false."
    ];
    actual = failures bladeWithTpm;
  };
}
