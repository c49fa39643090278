{ lib, outputs, ... }:
let
  inherit (outputs.nixosConfigurations.mini-3-mini1) config;
  inherit (config.nixwulf) cluster fabrics disk;
in
{
  "a node knows its cluster, its fabrics and its disk" = {
    expected = {
      name = "mini-3";
      node = "mini1";
      source = "clusters/mini-3.toml";
      nodes = [
        "mini1"
        "mini2"
        "mini3"
      ];
      fabrics.switch = "192.168.1.31";
      disk = "/dev/disk/by-id/nvme-EXAMPLE_1";
    };
    actual = {
      inherit (cluster) name node source;
      nodes = map (node: node.name) cluster.nodes;
      fabrics = lib.mapAttrs (_: fabric: fabric.address) fabrics;
      disk = disk.device;
    };
  };
  "a node's host name is its name in the cluster file" = {
    expected = "mini1";
    actual = config.networking.hostName;
  };
}
