# Opens ports to the other nodes of a fabric, and to nobody else there: most engines' protocols have no authentication.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  inherit (config.nixwulf) fabrics;
  inherit (config.networking) nftables;
  opened = lib.filterAttrs (name: _: fabrics ? ${name}) config.nixwulf.fabric-firewall;

  peers = import ../lib/peers.nix { inherit lib config; };
  linkLocal = import ../lib/link-local.nix { inherit lib; };

  # Of IPv6 nobody's address is known where the fabric does not give it: all is closed.
  families =
    name:
    [
      {
        program = "iptables";
        source = "ip";
        addresses = peers name;
      }
    ]
    ++ lib.optional (opened.${name}.ipv6 && config.networking.enableIPv6) {
      program = "ip6tables";
      source = "ip6";
      addresses = map linkLocal (peers name);
    };

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

  # A line for each fabric, family and protocol that has anything to let in.
  lines =
    render:
    lib.concatLines (
      lib.concatLists (
        lib.mapAttrsToList (
          name: open:
          lib.concatMap (
            family:
            lib.concatMap
              (
                protocol:
                lib.optional (open.${protocol} != [ ] && family.addresses != [ ]) (
                  render fabrics.${name}.interface family protocol (lib.unique open.${protocol})
                )
              )
              [
                "tcp"
                "udp"
              ]
          ) (families name)
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
          ipv6 = mkOption {
            type = types.bool;
            default = false;
            description = ''
              Whether the nodes reach these ports by IPv6 too. The fabric's interface then has one IPv6 address, which
              is link-local and ends with the IPv4 address, and takes none from a router.
            '';
          };
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
        interface: family: protocol:
        lib.concatMapStringsSep "\n" (
          port:
          "${family.program} -A nixos-fw -i ${interface} -s ${lib.concatStringsSep "," family.addresses} -p ${protocol} --dport ${range ":" port} -j nixos-fw-accept"
        )
      )
    );
    extraInputRules = mkIf nftables.enable (
      lines (
        interface: family: protocol: open:
        ''iifname "${interface}" ${family.source} saddr { ${lib.concatStringsSep ", " family.addresses} } ${protocol} dport { ${
          lib.concatMapStringsSep ", " (range "-") open
        } } accept''
      )
    );
  };
}
