# An installer ISO for a USB stick.
{ lib, modulesPath, ... }:
{
  imports = [
    "${modulesPath}/installer/cd-dvd/installation-cd-minimal.nix"
    ./installer.nix
  ];

  # Nobody sits there to choose.
  boot.loader.timeout = lib.mkForce 3;
  # The size differs little from xz's, and it is made in a fraction of the time.
  isoImage.squashfsCompression = "zstd -Xcompression-level 6";
}
