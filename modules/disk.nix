# One disk: a FAT partition that the firmware boots from and an ext4 root, laid out by disko when a node is deployed.
{ inputs }:
{ config, lib, ... }:
let
  cfg = config.nixwulf.disk;
  inherit (config.networking) hostName;

  # disko formats, mounts and boots by the names of partitions, so equal names on two disks of a machine would let it
  # overwrite the other one (https://github.com/nix-community/disko/issues/551). GPT's names have 36 characters, and disko
  # adds "disk-" and "-boot" or "-root" to these 26.
  hash = lib.substring 0 8 (builtins.hashString "sha256" "${hostName} ${cfg.device}");
  name = "${lib.substring 0 17 hostName}-${hash}";
in
{
  imports = [ inputs.disko.nixosModules.disko ];

  options.nixwulf.disk = {
    device = lib.mkOption {
      type = lib.types.nullOr (lib.types.strMatching "/dev/.+");
      default = null;
      example = "/dev/disk/by-id/nvme-WD_BLACK_SN850X_2000GB_23380U800123";
      description = ''
        The disk that deploy wipes and installs on, by id: `/dev/nvme0n1` may be another disk after the next boot.
      '';
    };
    bootMountPoint = lib.mkOption {
      type = lib.types.str;
      default = "/boot";
      description = "Where the partition that the firmware boots from is mounted.";
    };
    bootType = lib.mkOption {
      type = lib.types.str;
      default = "EF00";
      description = "GPT type of that partition, as sgdisk writes it; a platform without UEFI has another.";
    };
  };

  config = lib.mkIf (cfg.device != null) {
    disko.devices.disk.system = {
      type = "disk";
      inherit name;
      inherit (cfg) device;
      content = {
        type = "gpt";
        partitions = {
          boot = {
            size = "1G";
            type = cfg.bootType;
            content = {
              type = "filesystem";
              format = "vfat";
              mountpoint = cfg.bootMountPoint;
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
