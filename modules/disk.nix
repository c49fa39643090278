# One disk: an EFI system partition and an ext4 root, laid out by disko when a node is deployed.
{ inputs }:
{ config, lib, ... }:
let
  cfg = config.nixwulf.disk;
in
{
  imports = [ inputs.disko.nixosModules.disko ];

  options.nixwulf.disk.device = lib.mkOption {
    type = lib.types.nullOr (lib.types.strMatching "/dev/.+");
    default = null;
    example = "/dev/disk/by-id/nvme-WD_BLACK_SN850X_2000GB_23380U800123";
    description = ''
      The disk that deploy wipes and installs on, by id: `/dev/nvme0n1` may be another disk after the next boot.
    '';
  };

  config = lib.mkIf (cfg.device != null) {
    disko.devices.disk.system = {
      type = "disk";
      inherit (cfg) device;
      content = {
        type = "gpt";
        partitions = {
          boot = {
            size = "1G";
            type = "EF00";
            content = {
              type = "filesystem";
              format = "vfat";
              mountpoint = "/boot";
              mountOptions = [ "umask=0077" ];
            };
          };
          root = {
            size = "100%";
            content = {
              type = "filesystem";
              format = "ext4";
              mountpoint = "/";
            };
          };
        };
      };
    };
  };
}
