# An installer for an SD card or USB stick, for boards without UEFI.
{ modulesPath, ... }:
{
  imports = [
    "${modulesPath}/installer/sd-card/sd-image-aarch64-installer.nix"
    ./installer.nix
  ];

}
