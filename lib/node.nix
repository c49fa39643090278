# What a cluster file says of one of its nodes, as a module for NixOS and nix-darwin.
{ cluster, node }:
{ lib, ... }:
{
  networking.hostName = node.name;
  # So that a cluster file with a wrong address is refused on another cluster's node, whatever that is called.
  environment.etc."nixwulf/cluster".text = "${cluster.name}\n";
  # macOS has its own, a number.
  system = lib.mkIf (cluster.stateVersion != null && lib.hasSuffix "-linux" node.system) {
    inherit (cluster) stateVersion;
  };
  nixwulf = {
    cluster = {
      inherit (cluster)
        name
        source
        sshKeys
        models
        ;
      node = node.name;
      backends = node.facts.gpu.backends or [ ];
      sshUser = if lib.hasInfix "@" node.ssh then lib.head (lib.splitString "@" node.ssh) else null;
      nodes = map (other: {
        inherit (other) name;
        hostKey = other.host_key;
        addresses = lib.mapAttrs (_: attachment: attachment.address) other.fabrics;
        memoryGiB = other.facts.memory_gib.value or null;
      }) cluster.nodes;
    };
    fabrics = lib.mapAttrs (
      name: attachment:
      let
        fabric = cluster.fabrics.${name};
      in
      {
        inherit (fabric) kind mtu;
        speedGbps = fabric.speed_gbps;
        inherit (attachment) interface address;
        prefixLength = lib.toInt (lib.last (lib.splitString "/" fabric.subnet));
        rdmaDevice = attachment.rdma_device or null;
        gidIndex = attachment.gid_index or null;
      }
    ) node.fabrics;
  }
  // lib.optionalAttrs (node.disk != null) { disk.device = node.disk; };
}
