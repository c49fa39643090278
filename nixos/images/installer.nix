# What every installer has: ssh for the cluster's keys, an address by DHCP on every port, and nothing to type.
{ lib, ... }:
{
  services.openssh = {
    enable = true;
    settings = {
      PasswordAuthentication = false;
      KbdInteractiveAuthentication = false;
      PermitRootLogin = "prohibit-password";
    };
  };

  # What a router's list of leases shows. That this is an installer, nixos-anywhere reads from /etc/os-release.
  networking = {
    hostName = "nixwulf-installer";
    networkmanager.enable = lib.mkForce false;
    useNetworkd = true;
    useDHCP = true;
  };
  # Only one of a machine's ports may have a cable.
  systemd.network.wait-online.anyInterface = true;
  # For who has a screen but no list of leases: agetty writes the addresses.
  services.getty.helpLine = lib.mkForce "ssh root@\\4";

  # An array that is assembled holds the disk that is to be wiped, and no node has one.
  boot.swraid.enable = lib.mkForce false;

  # An installer computes nothing: drivers of GPUs are gigabytes.
  services.xserver.videoDrivers = lib.mkForce [ ];
  hardware.nvidia-container-toolkit.enable = lib.mkForce false;
  virtualisation.podman.enable = lib.mkForce false;

  # Systems are built elsewhere and copied here, so neither manuals nor a copy of nixpkgs are of use.
  documentation.enable = lib.mkForce false;
  documentation.nixos.enable = lib.mkForce false;
  system.installer.channel.enable = false;
  nixpkgs.overlays = lib.mkForce [ ];
}
