# Opens ports to the other nodes of a fabric, and to nobody else there: most engines' protocols have no authentication.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  inherit (config.nixwulf) fabrics;
  inherit (config.networking) nftables;
  opened = lib.filterAttrs (name: _: fabrics ? ${name}) config.nixwulf.fabric-firewall;

  # Fabrics have no IPv6 addresses: by IPv6 all is closed.
  peers = import ../lib/peers.nix { inherit lib config; };

  ports = mkOption {
    type = types.listOf (types.either types.port (types.attrsOf types.port));
    default = [ ];
    example = [
      50052
      {
        from = 32768;
        to = 60999;
      }
    ];
    description = "Ports, or ranges of them.";
  };

  # A line for each fabric and protocol that has anything to let in.
  lines =
    render:
    lib.concatLines (
      lib.concatLists (
        lib.mapAttrsToList (
          name: open:
          lib.concatMap
            (
              protocol:
              lib.optional (open.${protocol} != [ ] && peers name != [ ]) (
                render fabrics.${name}.interface (peers name) protocol (lib.unique open.${protocol})
              )
            )
            [
              "tcp"
              "udp"
            ]
        ) opened
      )
    );
  range =
    dash: port:
    if lib.isInt port then toString port else "${toString port.from}${dash}${toString port.to}";
in
{
  imports = [ ./cluster.nix ];

  options.nixwulf.fabric-firewall = mkOption {
    type = types.attrsOf (
      types.submodule {
        options = {
          tcp = ports;
          udp = ports;
        };
      }
    );
    default = { };
    description = ''
      By fabric, the ports of this node that the cluster's other nodes reach there; where the machine has no cluster,
      everybody in the fabric's subnet does.
    '';
  };

  config.networking.firewall = {
    extraCommands = mkIf (!nftables.enable) (
      lines (
        interface: sources: protocol:
        lib.concatMapStringsSep "\n" (
          port:
          "iptables -A nixos-fw -i ${interface} -s ${lib.concatStringsSep "," sources} -p ${protocol} --dport ${range ":" port} -j nixos-fw-accept"
        )
      )
    );
    extraInputRules = mkIf nftables.enable (
      lines (
        interface: sources: protocol: open:
        ''iifname "${interface}" ip saddr { ${lib.concatStringsSep ", " sources} } ${protocol} dport { ${
          lib.concatMapStringsSep ", " (range "-") open
        } } accept''
      )
    );
  };
}
