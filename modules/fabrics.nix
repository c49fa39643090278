# Addresses and MTU of the fabrics, by systemd-networkd.
{ config, lib, ... }:
let
  inherit (config.nixwulf) fabrics;
  inherit (config.networking) nftables;
  interfaces = lib.unique (lib.mapAttrsToList (_: fabric: fabric.interface) fabrics);
  isLan = fabric: fabric.kind == "ethernet" && fabric.cable == null;
  linkLocal = import ../lib/link-local.nix { inherit lib; };
  known = name: config.nixwulf.fabric-firewall.${name}.ipv6 or false;
  withIpv6 = fabrics != { } && config.networking.enableIPv6;
in
{
  imports = [ ./fabric-firewall.nix ];

  config = lib.mkIf (fabrics != { }) {
    networking.useNetworkd = true;
    # Whoever is on the LAN could answer for any name that DNS does not know.
    services.resolved.settings.Resolve.LLMNR = lib.mkDefault false;

    systemd.network.networks = lib.mapAttrs' (
      name: fabric:
      lib.nameValuePair "20-${name}" {
        matchConfig.Name = fabric.interface;
        linkConfig = {
          MTUBytes = toString fabric.mtu;
          # The boot waits for no cable. What asks for network-online.target waits for any link that is required; where
          # none is, for two minutes and in vain (https://github.com/systemd/systemd/blob/main/src/network/wait-online/manager.c).
          RequiredForOnline = if isLan fabric then "routable" else false;
        };
        address = [
          "${fabric.address}/${toString fabric.prefixLength}"
        ]
        ++ lib.optional (known name) "${linkLocal fabric.address}/64";
        gateway = lib.optional (fabric.gateway != null) fabric.gateway;
        inherit (fabric) dns;
        networkConfig = {
          # An office LAN has a router that the management address, the route and DNS come from; a cable has none.
          DHCP = if isLan fabric && fabric.gateway == null then "ipv4" else "no";
          LinkLocalAddressing = if isLan fabric && !known name then "ipv6" else "no";
          # RDMA's GIDs vanish with the address when a peer reboots and the carrier drops.
          ConfigureWithoutCarrier = true;
          IgnoreCarrierLoss = true;
        };
        ipv6AcceptRAConfig.DHCPv6Client = false;
      }
    ) fabrics;

    # NixOS lets the answers of DHCPv6 servers in everywhere, from any neighbour; on a fabric no node asks for them.
    networking.firewall.extraCommands = lib.mkIf (withIpv6 && !nftables.enable) (
      lib.concatMapStrings (interface: ''
        ip6tables -I nixos-fw -i ${interface} -p udp --dport 546 -j nixos-fw-log-refuse
      '') interfaces
    );
    networking.nftables.tables.nixwulf-fabrics = lib.mkIf (withIpv6 && nftables.enable) {
      family = "ip6";
      content = ''
        chain dhcpv6 {
          type filter hook input priority filter - 1;
          iifname { ${
            lib.concatMapStringsSep ", " (interface: ''"${interface}"'') interfaces
          } } udp dport 546 drop
        }
      '';
    };
  };
}
