# An installer for an SD card, for boards without UEFI. The platform says what its firmware partition holds.
{ lib, modulesPath, ... }:
{
  imports = [
    "${modulesPath}/installer/sd-card/sd-image.nix"
    "${modulesPath}/profiles/installation-device.nix"
    "${modulesPath}/profiles/minimal.nix"
    ./installer.nix
  ];

  # It names drivers of other boards, which a board's own kernel does not have.
  hardware.enableAllHardware = lib.mkForce false;
  installer.cloneConfig = false;
  system.stateVersion = lib.mkDefault lib.trivial.release;
}
