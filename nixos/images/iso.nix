# An installer ISO for a USB stick.
{ modulesPath, ... }:
{
  imports = [
    "${modulesPath}/installer/cd-dvd/installation-cd-minimal.nix"
    ./installer.nix
  ];

}
