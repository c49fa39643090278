# IP over Thunderbolt and USB4 cables between nodes.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.nixwulf.thunderbolt-net;
  inherit (config.nixwulf.cluster) where;

  cables = lib.filterAttrs (_: fabric: fabric.kind == "thunderbolt-net") config.nixwulf.fabrics;

  # The subnet as a number: equal for addresses of the same subnet.
  subnet =
    fabric:
    let
      octets = map lib.toIntBase10 (lib.splitString "." fabric.address);
      number = lib.foldl' (sum: octet: sum * 256 + octet) 0 octets;
    in
    "${
      toString (number / lib.foldl' (product: _: product * 2) 1 (lib.range 1 (32 - fabric.prefixLength)))
    }/${toString fabric.prefixLength}";

  # Groups of two or more fabrics that have something in common.
  sharing =
    what:
    lib.filter (names: lib.length names > 1) (
      lib.attrValues (lib.groupBy (name: what cables.${name}) (lib.attrNames cables))
    );
  quoted = lib.concatMapStringsSep " and " (name: "'${name}'");
in
{
  imports = [ ./cluster.nix ];

  options.nixwulf.thunderbolt-net = {
    enable = mkOption {
      type = types.bool;
      default = cables != { };
      defaultText = lib.literalMD "whether the node is on a `thunderbolt-net` fabric";
      description = ''
        Whether to load the drivers for IP over Thunderbolt. Expect 9.4 Gbit/s one way whatever `ethtool` says, and
        4.2 + 2.4 Gbit/s with retransmits when both ways are busy, after which the link may stop passing traffic
        without any error (https://blog.hellas.ai/blog/thunderbolt-ibverbs/2-scaling/). So the management address is
        better not on it. MTU 65520 and 9000 were both used; some controllers may not support jumbo frames.
      '';
    };
    ports = mkOption {
      type = types.attrsOf (types.strMatching "pci-.+");
      default = { };
      example = {
        tb-left = "pci-0000:c6:00.5";
        tb-right = "pci-0000:c6:00.6";
      };
      description = ''
        Names of network interfaces by the port's host controller, which is `ID_PATH` of
        `udevadm info /sys/class/net/thunderbolt0`. Without them the kernel calls the interfaces `thunderbolt0`,
        `thunderbolt1` in the order in which the cables come up, so that a reboot may swap them. AMD's controllers
        have one port each; two ports of one controller cannot be told apart.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    # The first loads by itself; the second does not on all kernels.
    boot.kernelModules = [
      "thunderbolt"
      "thunderbolt-net"
    ];

    systemd.network.links = lib.mapAttrs' (
      name: path:
      lib.nameValuePair "10-${name}" {
        matchConfig = {
          Path = path;
          Driver = "thunderbolt-net";
        };
        linkConfig = {
          Name = name;
          # The driver's own address belongs to the pair of hosts and is stable already.
          MACAddressPolicy = "none";
        };
      }
    ) cfg.ports;

    assertions =
      map (names: {
        assertion = false;
        message = "${where}: the fabrics ${quoted names} are both on the interface '${
          cables.${lib.head names}.interface
        }'; a Thunderbolt link needs an interface of its own, named by nixwulf.thunderbolt-net.ports.";
      }) (sharing (fabric: fabric.interface))
      ++ map (names: {
        assertion = false;
        message = "${where}: the Thunderbolt fabrics ${quoted names} share a subnet, so that packets leave by one link only; give each link a subnet of its own.";
      }) (sharing subnet)
      ++
        map
          (name: {
            assertion = false;
            message = "${where}: the kernel numbers '${cables.${name}.interface}' of the fabric '${name}' in the order in which the cables come up; name its port by nixwulf.thunderbolt-net.ports.";
          })
          (
            lib.optionals (lib.length (lib.attrNames cables) > 1) (
              lib.filter (name: lib.match "thunderbolt[0-9]+" cables.${name}.interface != null) (
                lib.attrNames cables
              )
            )
          );
  };
}
