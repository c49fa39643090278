# What a cluster file says of one of its nodes, as a module for NixOS and nix-darwin.
{ cluster, node }:
{ lib, ... }:
let
  # The ports by which this node reaches another, and its own, by this node's names for them.
  portsTowards =
    other:
    if other.name == node.name then
      node.ports
    else
      map (port: port // { name = port.nameTo other.name; }) (
        lib.filter (port: port.other == null || port.other == node.name) other.ports
      );

  isLinux = lib.hasSuffix "-linux" node.system;
  devicesOf = port: lib.toList (port.end.rdma_device or [ ]);
in
{
  networking.hostName = node.name;
  # So that a cluster file with a wrong address is refused on another cluster's node, whatever that is called.
  environment.etc."nixwulf/cluster".text = "${cluster.name}\n";
  # macOS has its own, a number.
  system = lib.mkIf (cluster.stateVersion != null && isLinux) {
    inherit (cluster) stateVersion;
  };
  warnings = lib.optional (cluster.stateVersion == null && isLinux) (
    "${cluster.source}: deploy.state_version is missing, and its default changes with Nixwulf; write the NixOS release that "
    + "the nodes were first deployed with, for new ones state_version = \"${lib.trivial.release}\"."
  );
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
        addresses = lib.listToAttrs (
          map (port: lib.nameValuePair port.name port.end.address) (portsTowards other)
        );
        memoryGiB = other.facts.memory_gib.value or null;
      }) cluster.nodes;
    };
    fabrics = lib.listToAttrs (
      map (
        port:
        let
          fabric = cluster.fabrics.${port.fabric};
          devices = devicesOf port;
          twins = lib.filter (twin: twin.fabric == port.fabric && twin.other == port.other) node.ports;
        in
        lib.nameValuePair port.name {
          inherit (fabric) kind mtu;
          inherit (port) label;
          cable = port.other;
          speedGbps = fabric.speed_gbps;
          inherit (port.end) interface address;
          gateway = fabric.gateway or null;
          dns = fabric.dns or [ ];
          prefixLength = fabric.link_prefix or (lib.toInt (lib.last (lib.splitString "/" fabric.subnet)));
          rdmaDevice = if devices == [ ] then null else lib.head devices;
          rdmaDevices = lib.concatMap devicesOf (if port == lib.head twins then twins else [ port ]);
          gidIndex = port.end.gid_index or null;
        }
      ) node.ports
    );
  }
  // lib.optionalAttrs (node.disk != null) { disk.device = node.disk; };
}
