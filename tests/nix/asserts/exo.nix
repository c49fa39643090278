{
  lib,
  pkgs,
  evaluate,
  failures,
  ...
}:
let
  config = evaluate [ node ];
  # Of an exo of another version.
  versioned =
    version:
    evaluate [
      node
      {
        nixwulf.exo.package = pkgs.exo.overrideAttrs {
          inherit version;
          __intentionallyOverridingVersion = true;
        };
      }
    ];
  later = versioned "1.0.71-unstable-2026-06-22";
  arguments =
    config:
    lib.concatStringsSep " " (
      lib.tail (
        lib.splitString " " (lib.replaceString "\"" "" config.systemd.services.exo.serviceConfig.ExecStart)
      )
    );
  node = {
    nixwulf.cluster = {
      name = "desk";
      nodes = [
        {
          name = "a";
          addresses.cable = "10.10.0.1";
        }
        {
          name = "b";
          addresses.cable = "10.10.0.2";
        }
        {
          name = "c";
          addresses.office = "192.168.1.3";
        }
      ];
    };
    nixwulf.fabrics.cable = {
      kind = "thunderbolt-net";
      interface = "thunderbolt0";
      address = "10.10.0.1";
      prefixLength = 24;
      mtu = 9000;
      speedGbps = 20;
    };
    nixwulf.exo = {
      enable = true;
      fabric = "cable";
      modelsFolders = [ "/models" ];
    };
  };
  service = config.systemd.services.exo;
  ipv6Rules =
    config:
    lib.filter (lib.hasPrefix "ip6tables -A nixos-fw -i thunderbolt0") (
      lib.splitString "\n" config.networking.firewall.extraCommands
    );
  inherit (config.networking) firewall;
in
{
  "of the folders of users it sees the models" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line config.systemd.units."exo.service".text) [
      "ProtectHome=tmpfs\n"
      "BindReadOnlyPaths=\"/models\"\n"
    ];
  };
  "its ports are those of its options, and its assertions hold" = {
    expected = {
      arguments = "--api-port 52415 --libp2p-port 52414";
      failures = [ ];
    };
    actual = {
      arguments = arguments config;
      failures = failures config;
    };
  };
  "the nodes of an exo after 1.0.71 find each other by IPv6, of which each knows the others' addresses" =
    {
      expected = {
        arguments = "--api-port 52415 --zenoh-port 52414 --discovery-port 52413 --namespace desk";
        variables = [ ];
        failures = [ ];
        network = [
          "LinkLocalAddressing=no"
          "Address=10.10.0.1/24"
          "Address=fe80::a0a:1/64"
        ];
        unit = [
          "10.10.0.1"
          "10.10.0.2"
          "localhost"
          "multicast"
          "fe80::a0a:1"
          "fe80::a0a:2"
        ];
        rules =
          map (port: "ip6tables -A nixos-fw -i thunderbolt0 -s fe80::a0a:2 -p ${port} -j nixos-fw-accept")
            [
              "tcp --dport 52415"
              "tcp --dport 52414"
              "tcp --dport 49152:65535"
              "udp --dport 52413"
            ];
        earlier = [ ];
      };
      actual = {
        arguments = arguments later;
        variables = lib.filter (name: lib.hasInfix "LIBP2P" name || lib.hasInfix "BOOTSTRAP" name) (
          lib.attrNames later.systemd.services.exo.environment
        );
        failures = failures later;
        network = lib.filter (line: builtins.match "(Address|LinkLocalAddressing)=.*" line != null) (
          lib.splitString "\n" later.systemd.network.units."20-cable.network".text
        );
        unit = later.systemd.services.exo.serviceConfig.IPAddressAllow;
        rules = ipv6Rules later;
        earlier = ipv6Rules config;
      };
    };
  "it stays in its namespace and off the Internet, and calls the others on the fabric" = {
    expected = {
      EXO_LIBP2P_NAMESPACE = "desk";
      EXO_OFFLINE = "true";
      EXO_BOOTSTRAP_PEERS = "/ip4/10.10.0.2/tcp/52414";
      EXO_MODELS_READ_ONLY_DIRS = "/models";
    };
    actual = {
      inherit (service.environment)
        EXO_LIBP2P_NAMESPACE
        EXO_OFFLINE
        EXO_BOOTSTRAP_PEERS
        EXO_MODELS_READ_ONLY_DIRS
        ;
    };
  };
  "it reaches and is reached by no interface but the fabric's, although it binds all" = {
    expected = true;
    actual =
      lib.hasInfix "RestrictNetworkInterfaces=lo\nRestrictNetworkInterfaces=thunderbolt0\n"
        config.systemd.units."exo.service".text;
  };
  "its API and ports are open to the nodes on the fabric, and nothing anywhere else" = {
    expected = {
      interfaces = [ ];
      addresses = [
        "10.10.0.1"
        "10.10.0.2"
        "localhost"
        "multicast"
      ];
      peers = {
        tcp = [
          52415
          52414
          {
            from = 49152;
            to = 65535;
          }
        ];
        udp = [ 5353 ];
        ipv6 = false;
      };
      everywhere = [ ];
      ranges = [ ];
    };
    actual = {
      interfaces = lib.attrNames firewall.interfaces;
      addresses = service.serviceConfig.IPAddressAllow;
      peers = config.nixwulf.fabric-firewall.cable;
      everywhere = lib.intersectLists [ 52414 52415 ] firewall.allowedTCPPorts;
      ranges = firewall.allowedTCPPortRanges;
    };
  };
  "the interface's appearance starts it" = {
    expected = true;
    actual = lib.hasInfix "KERNEL==\"thunderbolt0\", TAG+=\"systemd\", ENV{SYSTEMD_WANTS}+=\"exo.service\"" config.services.udev.extraRules;
  };
  "it is nobody and is started again when it fails" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line config.systemd.units."exo.service".text) [
      "DynamicUser=true"
      "ProtectSystem=strict"
      "Restart=on-failure"
    ];
  };
}
