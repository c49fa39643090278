{
  lib,
  pkgs,
  evaluate,
  failures,
  ...
}:
let
  config = evaluate [ node ];
  # What an exo of a version is refused with.
  refused =
    version:
    lib.filter (lib.hasInfix "nixwulf.exo.package is exo ${version}, and the service has the options") (
      failures (evaluate [
        node
        {
          nixwulf.exo.package = pkgs.exo.overrideAttrs {
            inherit version;
            __intentionallyOverridingVersion = true;
          };
        }
      ])
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
  "the service is for exo 1.0.71, and one of later commits is refused with the sentence why" = {
    expected = [
      0
      1
      1
      0
    ];
    actual = map (version: lib.length (refused version)) [
      "1.0.71"
      "1.0.71-unstable-2026-06-22"
      "1.0.72"
      pkgs.exo.version
    ];
  };
  "its ports are those of its options" = {
    expected = "--api-port 52415 --libp2p-port 52414";
    actual = lib.concatStringsSep " " (
      lib.tail (lib.splitString " " (lib.replaceString "\"" "" service.serviceConfig.ExecStart))
    );
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
