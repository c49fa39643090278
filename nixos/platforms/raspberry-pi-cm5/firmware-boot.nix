# The Pi's firmware loads the kernel by itself. The usual way of NixOS, U-Boot and extlinux, ends on a Pi 5 at the NVMe
# drive: U-Boot 2026.04 drives neither its PCIe nor its USB (nixos-hardware's raspberry-pi/README.md says so).
#
# Each generation has a folder on the firmware partition, and config.txt, written last, names one by os_prefix
# (https://www.raspberrypi.com/documentation/computers/config_txt.html): a power cut leaves the old one bootable.
{
  config,
  lib,
  options,
  pkgs,
  ...
}:
let
  inherit (config.hardware.raspberry-pi) configtxt;
  mountPoint = config.nixwulf.disk.bootMountPoint;

  install = pkgs.writeShellApplication {
    name = "install-firmware-boot";
    runtimeInputs = [
      pkgs.coreutils
      pkgs.util-linux
    ];
    text = ''
      toplevel=$(readlink -f "$1")
      firmware=''${2:-${mountPoint}}
      if [ $# -lt 2 ] && ! mountpoint --quiet "$firmware"; then
        echo "${mountPoint} is not mounted, so that no kernel can be installed; mount the disk's FAT partition there."
        exit 1
      fi >&2

      folder_of() {
        local name=''${1##*/}
        echo "nixos-''${name%%-*}"
      }

      folder=$(folder_of "$toplevel")
      if [ ! -d "$firmware/$folder" ]; then
        new=$firmware/$folder.new
        rm -rf "$new"
        mkdir -p "$new/overlays"
        cp "$toplevel/kernel" "$new/kernel"
        cp "$toplevel/initrd" "$new/initrd"
        echo "init=$toplevel/init $(<"$toplevel/kernel-params")" >"$new/cmdline.txt"
        cp ${config.hardware.deviceTree.package}/broadcom/bcm2712*.dtb "$new/"
        cp ${config.boot.kernelPackages.kernel}/dtbs/overlays/* "$new/overlays/"
        # The firmware takes a folder's overlays only where this file is beside them.
        touch "$new/overlays/README"
        mv "$new" "$firmware/$folder"
      fi

      {
        cat ${configtxt.file}
        printf '\n[all]\nos_prefix=%s/\nkernel=kernel\ninitramfs initrd followkernel\n' "$folder"
      } >"$firmware/config.txt.new"
      sync
      mv "$firmware/config.txt.new" "$firmware/config.txt"

      booted=
      if [ -e /run/booted-system ]; then booted=$(folder_of "$(readlink -f /run/booted-system)"); fi
      for old in "$firmware"/nixos-*; do
        case ''${old##*/} in
          "$folder" | "$booted") ;;
          *) rm -rf "$old" ;;
        esac
      done
      sync
    '';
  };
in
{
  config = {
    system.build.installFirmwareBoot = install;
    boot.loader = {
      generic-extlinux-compatible.enable = lib.mkForce false;
      external = {
        enable = true;
        installHook = lib.getExe install;
      };
    };
  }
  # Only an image has these options. nixos-hardware forces its own, which are made for U-Boot.
  // lib.optionalAttrs (options ? sdImage) {
    sdImage = {
      firmwareSize = 512;
      populateFirmwareCommands = lib.mkOverride 40 "${lib.getExe install} ${config.system.build.toplevel} ./firmware";
      populateRootCommands = "mkdir -p ./files/boot";
    };
  };
}
