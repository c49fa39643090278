# Refuses to make one node into another: a wrong address in a cluster file, or a slip in a loop over nodes.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixwulf.hostname-guard;
  name = config.networking.hostName;
in
{
  imports = [ ./bench-node.nix ];

  options.nixwulf.hostname-guard.enable = lib.mkOption {
    type = lib.types.bool;
    default = config.nixwulf.bench-node.enable;
    defaultText = lib.literalExpression "config.nixwulf.bench-node.enable";
    description = ''
      Whether to refuse a switch on a machine that has another host name than the new system. A first installation
      passes, and so does `EXPECTED_HOSTNAME=<new name> .../bin/switch-to-configuration switch` on the machine, which
      says that the name is to change; the running machine has its new one with the next boot.
    '';
  };

  config = lib.mkIf cfg.enable {
    system.preSwitchChecks.hostname = ''
      # After a switch that renames the machine, the kernel has the old name until the next boot. No program is on PATH
      # where systemd runs the switch.
      current=$(</proc/sys/kernel/hostname)
      if [ -r /etc/hostname ]; then current=$(</etc/hostname); fi
      new=${lib.escapeShellArg name}
      # nixos-install switches in a chroot, where nothing has booted and the name is the installer's.
      if [ -e /run/booted-system ] && [ "$current" != "$new" ] && [ "''${EXPECTED_HOSTNAME:-}" != "$new" ]; then
        echo ${lib.escapeShellArg config.nixwulf.cluster.where}": this machine is '$current'; correct its ssh address, or run \
      EXPECTED_HOSTNAME=$new $1/bin/switch-to-configuration ''${2:-switch} on it to rename it."
        exit 1
      fi
      # The names of a disk's partitions have the host's in them (disk.nix), and nothing renames them: the initrd of a
      # system of another name would wait for them, and the loader would take the old system again.
      if [ -e /run/booted-system ] && [ "$current" != "$new" ] && [ -r "$1/etc/fstab" ]; then
        renamings=
        while read -r wanted place _; do
          if [[ $wanted != /dev/disk/by-partlabel/* || -e $wanted ]]; then continue; fi
          while read -r present mounted _; do
            if [[ $mounted = "$place" && $present = /dev/* && -e $present ]]; then
              read -r disk number < <(${pkgs.util-linux}/bin/lsblk -dnro PKNAME,PARTN "$present")
              renamings+="sfdisk --no-reread --part-label /dev/$disk $number ''${wanted##*/} && "
            fi
          done </etc/fstab
        done <"$1/etc/fstab"
        if [ -n "$renamings" ]; then
          echo ${lib.escapeShellArg config.nixwulf.cluster.where}": the partitions of this machine have the names of '$current', and '$new' would not find them when it boots; \
      rename them and it together: ''${renamings}udevadm trigger --settle --subsystem-match=block && EXPECTED_HOSTNAME=$new $1/bin/switch-to-configuration ''${2:-switch}"
          exit 1
        fi
      fi
    '';
  };
}
