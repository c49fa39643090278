# What the configuration of a NixOS node would do to its machine, as values: the driver compares it with the machine's
# facts before anything is done.
system:
let
  inherit (system) config;
  disks = builtins.attrValues config.disko.devices.disk;
in
{
  disks = map (disk: disk.device) disks;
  labels = builtins.concatMap (
    disk:
    map (partition: partition.label) (
      if disk.content.type or null == "gpt" then builtins.attrValues disk.content.partitions else [ ]
    )
  ) disks;
  # What finds the disk at boot.
  modules = config.boot.initrd.availableKernelModules ++ config.boot.initrd.kernelModules;
  # Names that the configuration gives to interfaces itself. Null where they are the kernel's, which no other system knows.
  interfaces =
    if config.networking.usePredictableInterfaceNames then
      builtins.concatMap (link: if link.linkConfig ? Name then [ link.linkConfig.Name ] else [ ]) (
        builtins.attrValues config.systemd.network.links
      )
    else
      null;
}
