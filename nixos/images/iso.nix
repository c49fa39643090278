# An installer ISO for a USB stick.
{
  config,
  lib,
  modulesPath,
  ...
}:
{
  imports = [
    "${modulesPath}/installer/cd-dvd/installation-cd-minimal.nix"
    ./installer.nix
  ];

  # It names drivers that a kernel of the platform's own may lack, pata_pcmcia first, and no initrd is built then. A
  # platform that lists its kernel's drivers itself says so by includeDefaultModules.
  hardware.enableAllHardware = lib.mkForce config.boot.initrd.includeDefaultModules;
  # Built for the platform's kernel on the machine that makes the image, and no node has it.
  boot.supportedFilesystems.zfs = lib.mkForce false;

  # Nobody sits there to choose.
  boot.loader.timeout = lib.mkForce 3;
  # The size differs little from xz's, and it is made in a fraction of the time.
  isoImage.squashfsCompression = "zstd -Xcompression-level 6";
}
