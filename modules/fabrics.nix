# Addresses and MTU of the fabrics, by systemd-networkd.
{ config, lib, ... }:
let
  inherit (config.nixwulf) fabrics;
in
{
  imports = [ ./cluster.nix ];

  config = lib.mkIf (fabrics != { }) {
    networking.useNetworkd = true;

    systemd.network.networks = lib.mapAttrs' (
      name: fabric:
      lib.nameValuePair "20-${name}" {
        matchConfig.Name = fabric.interface;
        linkConfig = {
          MTUBytes = toString fabric.mtu;
          # The boot waits for no cable. What asks for network-online.target waits for any link that is required; where
          # none is, for two minutes and in vain (https://github.com/systemd/systemd/blob/main/src/network/wait-online/manager.c).
          RequiredForOnline = if fabric.kind == "ethernet" then "routable" else false;
        };
        address = [ "${fabric.address}/${toString fabric.prefixLength}" ];
        networkConfig = {
          # An office LAN has a router that the management address, the route and DNS come from; a cable has none.
          DHCP = if fabric.kind == "ethernet" then "ipv4" else "no";
          LinkLocalAddressing = if fabric.kind == "ethernet" then "ipv6" else "no";
          # RDMA's GIDs vanish with the address when a peer reboots and the carrier drops.
          ConfigureWithoutCarrier = true;
          IgnoreCarrierLoss = true;
        };
      }
    ) fabrics;
  };
}
