{ lib, evaluate, ... }:
let
  node =
    settings:
    (evaluate [
      {
        nixwulf.fabrics.cable = {
          kind = "thunderbolt-net";
          interface = "thunderbolt0";
          address = "10.0.0.1";
          prefixLength = 24;
          mtu = 1500;
          speedGbps = 10;
        };
        nixwulf.fabric-firewall.cable = {
          tcp = [
            50052
            {
              from = 32768;
              to = 60999;
            }
            50052
          ];
          udp = [ 7842 ];
        };
      }
      settings
    ]).networking.firewall;
  clustered.nixwulf.cluster.nodes = [
    {
      name = "a";
      addresses.cable = "10.0.0.1";
    }
    {
      name = "b";
      addresses.cable = "10.0.0.2";
    }
    {
      name = "c";
      addresses.cable = "10.0.0.3";
    }
    {
      name = "d";
      addresses.office = "192.168.1.4";
    }
  ];
  lines =
    firewall: lib.filter (lib.hasInfix "thunderbolt0") (lib.splitString "\n" firewall.extraCommands);
  ipv6.nixwulf.fabric-firewall.cable.ipv6 = true;
  ipv6Rules = firewall: lib.filter (lib.hasPrefix "ip6tables -A") (lines firewall);
  rules = firewall: lib.filter (lib.hasPrefix "iptables") (lines firewall);
in
{
  "the other nodes on the fabric, and nobody else, reach each port once" = {
    expected = [
      "iptables -A nixos-fw -i thunderbolt0 -s 10.0.0.2,10.0.0.3 -p tcp --dport 50052 -j nixos-fw-accept"
      "iptables -A nixos-fw -i thunderbolt0 -s 10.0.0.2,10.0.0.3 -p tcp --dport 32768:60999 -j nixos-fw-accept"
      "iptables -A nixos-fw -i thunderbolt0 -s 10.0.0.2,10.0.0.3 -p udp --dport 7842 -j nixos-fw-accept"
    ];
    actual = rules (node clustered);
  };
  "so it is with nftables" = {
    expected = ''
      iifname "thunderbolt0" ip saddr { 10.0.0.2, 10.0.0.3 } tcp dport { 50052, 32768-60999 } accept
      iifname "thunderbolt0" ip saddr { 10.0.0.2, 10.0.0.3 } udp dport { 7842 } accept
    '';
    actual = (node (clustered // { networking.nftables.enable = true; })).extraInputRules;
  };
  "where nobody says who the nodes are, the fabric's subnet is let in" = {
    expected = "iptables -A nixos-fw -i thunderbolt0 -s 10.0.0.1/24 -p udp --dport 7842 -j nixos-fw-accept";
    actual = lib.last (rules (node { }));
  };
  "where a program wants IPv6, the same nodes are let in by their link-local addresses" = {
    expected = {
      iptables = "ip6tables -A nixos-fw -i thunderbolt0 -s fe80::a00:2,fe80::a00:3 -p udp --dport 7842 -j nixos-fw-accept";
      subnet = "ip6tables -A nixos-fw -i thunderbolt0 -s fe80::a00:1/120 -p udp --dport 7842 -j nixos-fw-accept";
      nftables = [
        ''iifname "thunderbolt0" ip6 saddr { fe80::a00:2, fe80::a00:3 } tcp dport { 50052, 32768-60999 } accept''
        ''iifname "thunderbolt0" ip6 saddr { fe80::a00:2, fe80::a00:3 } udp dport { 7842 } accept''
      ];
    };
    actual = {
      iptables = lib.last (ipv6Rules (node (lib.recursiveUpdate clustered ipv6)));
      subnet = lib.last (ipv6Rules (node ipv6));
      nftables = lib.filter (lib.hasInfix "ip6 saddr") (
        lib.splitString "\n"
          (node {
            imports = [
              clustered
              ipv6
            ];
            networking.nftables.enable = true;
          }).extraInputRules
      );
    };
  };
  "a cluster of a single node lets nobody in" = {
    expected = [ ];
    actual = rules (node {
      nixwulf.cluster.nodes = [
        {
          name = "a";
          addresses.cable = "10.0.0.1";
        }
      ];
    });
  };
  "no answer of a DHCPv6 server, for which a fabric has no question, comes in" = {
    expected = [ "ip6tables -I nixos-fw -i thunderbolt0 -p udp --dport 546 -j nixos-fw-log-refuse" ];
    actual = lib.filter (lib.hasPrefix "ip6tables") (lines (node clustered));
  };
}
