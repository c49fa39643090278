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
          # A cable that is not plugged in must not hold up the boot.
          RequiredForOnline = false;
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
