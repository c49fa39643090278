{
  lib,
  nixwulf,
  outputs,
  ...
}:
let
  template = nixwulf.inventory.read ../../../templates/cluster/cluster.toml;
  older = nixwulf.cluster.nodesOf { } (template // { stateVersion = "26.05"; });
  silent = nixwulf.cluster.nodesOf { } (template // { stateVersion = null; });
  warnings =
    nodes:
    lib.filter (lib.hasInfix "state_version") nodes.nixosConfigurations.mine-mini1.config.warnings;
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
  "a node says whose it is, so that another cluster's file does not change it" = {
    expected = "mini-3\n";
    actual = config.environment.etc."nixwulf/cluster".text;
  };
  "a node's host name is its name in the cluster file" = {
    expected = "mini1";
    actual = config.networking.hostName;
  };
  "nodes keep the release that they were deployed with, and a new cluster says which that is" = {
    expected = {
      new = lib.trivial.release;
      older = "26.05";
    };
    actual = {
      new = template.stateVersion;
      older = older.nixosConfigurations.mine-mini1.config.system.stateVersion;
    };
  };
  "who does not say that release is warned once a node, with the line to write" = {
    expected = {
      older = [ ];
      silent = [
        "${template.source}: deploy.state_version is missing, and its default changes with Nixwulf; write the NixOS release that the nodes were first deployed with, for new ones state_version = \"${lib.trivial.release}\"."
      ];
    };
    actual = {
      older = warnings older;
      silent = warnings silent;
    };
  };
}
