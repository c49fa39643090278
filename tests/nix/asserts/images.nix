{
  lib,
  failures,
  nixwulf,
  outputs,
  ...
}:
let
  key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEBHUZKDHqXL5TK+aDZky35dHhbf6qpBXOtZFLIsz5ND test";
  installer =
    platform:
    nixwulf.cluster.installer {
      inherit platform;
      sshKeys = [ key ];
    };
  iso = (installer "generic-x86_64").config;
  sd = (installer "raspberry-pi-cm5").config;
  ssh = iso.services.openssh;
in
{
  "an installer lets in the keys and nobody by password" = {
    expected = {
      enable = true;
      atBoot = true;
      password = false;
      interactive = false;
      root = "prohibit-password";
      keys = [ key ];
    };
    actual = {
      inherit (ssh) enable;
      atBoot = lib.elem "multi-user.target" iso.systemd.services.sshd.wantedBy;
      password = ssh.settings.PasswordAuthentication;
      interactive = ssh.settings.KbdInteractiveAuthentication;
      root = ssh.settings.PermitRootLogin;
      inherit (iso.users.users.root.openssh.authorizedKeys) keys;
    };
  };
  "nixos-anywhere takes it for an installer, and so does not try kexec" = {
    expected = [
      "installer"
      "installer"
    ];
    actual = map (config: config.system.nixos.variant_id) [
      iso
      sd
    ];
  };
  "every port asks for an address, and one is enough" = {
    expected = {
      networkd = true;
      dhcp = true;
      any = true;
      manager = false;
    };
    actual = {
      networkd = iso.networking.useNetworkd;
      dhcp = iso.networking.useDHCP;
      any = iso.systemd.network.wait-online.anyInterface;
      manager = iso.networking.networkmanager.enable;
    };
  };
  "a machine without a keyboard boots it" = {
    expected = 3;
    actual = iso.boot.loader.timeout;
  };
  "the SD card's firmware partition has the kernel, for which there is room" = {
    expected = true;
    actual =
      lib.hasPrefix "${sd.boot.loader.external.installHook} " sd.sdImage.populateFirmwareCommands
      && sd.sdImage.firmwareSize >= 256;
  };
  "an installer's assertions hold" = {
    expected = [ ];
    actual = failures iso ++ failures sd;
  };
  "a Mac has no image, and its facts say why" = {
    expected = {
      image = false;
      reason = true;
    };
    actual = {
      image = (builtins.tryEval (installer "mac-studio-m3-ultra")).success;
      reason = nixwulf.platformFacts.mac-studio-m3-ultra.install ? reason;
    };
  };
  "every platform of an example cluster that can be imaged has an image" = {
    expected = [ ];
    actual = lib.subtractLists (lib.concatMap lib.attrNames (lib.attrValues outputs.packages)) [
      "image-dgx-spark"
      "image-generic-x86_64"
      "image-raspberry-pi-cm5"
    ];
  };
}
