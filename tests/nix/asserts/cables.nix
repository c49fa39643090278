# A fabric of cables: an address, a rule and a name for each cable, and all of a cable's RDMA devices for NCCL.
{ lib, outputs, ... }:
let
  inherit (outputs.nixosConfigurations.dgx-spark-3-spark2) config;
  mac = outputs.darwinConfigurations.mac-studio-4-mac-b.config;
  inherit (config.nixwulf) cluster fabrics;
  rules = lib.filter (lib.hasInfix "--dport 4791 ") (
    lib.splitString "\n" config.networking.firewall.extraCommands
  );
  nccl = import ../../../lib/nccl.nix { inherit lib; };
in
{
  "a node has an address on every port of every cable" = {
    expected = {
      ring-spark1 = "192.168.0.2/24";
      ring-spark1-2 = "192.168.1.2/24";
      ring-spark3 = "192.168.4.1/24";
      ring-spark3-2 = "192.168.5.1/24";
    };
    actual = lib.mapAttrs (name: _: lib.head config.systemd.network.networks."20-${name}".address) (
      removeAttrs fabrics [ "lan" ]
    );
  };
  "the firewall lets in the node at the other end of a cable, and nobody else there" = {
    expected = [
      "iptables -A nixos-fw -i enP2p1s0f0np0 -s 192.168.5.2 -p udp --dport 4791 -j nixos-fw-accept"
      "iptables -A nixos-fw -i enP2p1s0f1np1 -s 192.168.1.1 -p udp --dport 4791 -j nixos-fw-accept"
      "iptables -A nixos-fw -i enp1s0f0np0 -s 192.168.4.2 -p udp --dport 4791 -j nixos-fw-accept"
      "iptables -A nixos-fw -i enp1s0f1np1 -s 192.168.0.1 -p udp --dport 4791 -j nixos-fw-accept"
    ];
    actual = lib.sort lib.lessThan rules;
  };
  "a name means the address at the other end of this node's cable" = {
    expected = {
      "192.168.0.1" = [ "spark1-ring" ];
      "192.168.1.1" = [ "spark1-ring-2" ];
      "192.168.4.2" = [ "spark3-ring" ];
      "10.20.0.3" = [
        "spark3"
        "spark3-lan"
      ];
    };
    actual = lib.getAttrs [
      "192.168.0.1"
      "192.168.1.1"
      "192.168.4.2"
      "10.20.0.3"
    ] config.networking.hosts;
  };
  "the first entry of a cable has the devices of all its ports, each of which NCCL takes" = {
    expected = {
      devices = [
        "rocep1s0f0"
        "roceP2p1s0f0"
      ];
      hca = "=roceP2p1s0f0,rocep1s0f0";
      merged = "0";
      prefix = "24";
    };
    actual =
      let
        environment = nccl {
          fabric = fabrics.ring-spark3;
          transport = "rdma";
        };
      in
      {
        devices = fabrics.ring-spark3.rdmaDevices;
        hca = environment.NCCL_IB_HCA;
        merged = environment.NCCL_IB_MERGE_NICS;
        prefix = environment.NCCL_IB_SUBNET_PREFIX_LEN;
      };
  };
  "a Mac knows its end of each cable" = {
    expected = {
      mesh-mac-a = "10.50.12.2";
      mesh-mac-c = "10.50.23.1";
      mesh-mac-d = "10.50.24.1";
      office = "192.168.1.52";
    };
    actual = lib.mapAttrs (_: fabric: fabric.address) mac.nixwulf.fabrics;
  };
  "the other nodes of a cluster are known by the addresses of the cables to them" = {
    expected = [
      [ "192.168.0.1" ]
      [ "192.168.0.2" ]
      [ ]
    ];
    actual = map (
      node: lib.optional (node.addresses ? ring-spark1) node.addresses.ring-spark1
    ) cluster.nodes;
  };
}
