# What the tests of the installers share: a platform's installer as the flake gives it to users, the desk whose key it lets
# in, and an NVMe drive that nobody may write to before it is formatted.
{ nixwulf, pkgs }:
arguments:
let
  keys = import (pkgs.path + "/nixos/tests/ssh-keys.nix") pkgs;
  serial = "NIXWULF-disk";
  disk = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_${serial}";

  installer = nixwulf.cluster.installer (arguments // { sshKeys = [ keys.snakeOilPublicKey ]; });
  # What formats the disk of a node of this platform.
  format =
    (installer.extendModules { modules = [ { nixwulf.disk.device = disk; } ]; })
    .config.system.build.diskoScript;
in
{
  inherit (installer) config;
  drive = [
    "-drive if=none,id=disk,format=raw,file=disk.raw"
    "-device nvme,drive=disk,serial=${serial}"
  ];

  desk = {
    environment.etc."desk-key" = {
      source = keys.snakeOilPrivateKey;
      mode = "0400";
    };
    programs.ssh.extraConfig = ''
      Host *
        IdentityFile /etc/desk-key
        StrictHostKeyChecking accept-new
    '';
    # There is no network but the switch: what is copied to the installer has to be here.
    virtualisation.additionalPaths = [ format ];
  };

  script = ''
    DISK, FORMAT = "${disk}", "${format}"
    ${pkgs.lib.readFile ./live-installer.py}'';
}
