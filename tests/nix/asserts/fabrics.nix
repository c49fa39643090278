{ evaluate, lib, ... }:
let
  config = evaluate [
    {
      nixwulf.fabrics.switch = {
        kind = "ethernet";
        interface = "enp1s0";
        address = "192.168.1.31";
        prefixLength = 24;
        mtu = 9000;
        speedGbps = 2.5;
      };
      nixwulf.fabrics.lone = {
        kind = "ethernet";
        interface = "enp2s0";
        address = "192.168.2.31";
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 1;
        gateway = "192.168.2.1";
        dns = [
          "192.168.2.1"
          "9.9.9.9"
        ];
      };
      nixwulf.fabrics.cable = {
        kind = "thunderbolt-net";
        interface = "thunderbolt0";
        address = "10.0.0.1";
        prefixLength = 24;
        mtu = 9000;
        speedGbps = 20;
      };
    }
  ];
  text = name: config.systemd.network.units."${name}.network".text;
  network = config.systemd.network.networks."20-switch";
in
{
  "a fabric's interface has its address" = {
    expected = [ "192.168.1.31/24" ];
    actual = network.address;
  };
  "a fabric's interface has its MTU" = {
    expected = "9000";
    actual = network.linkConfig.MTUBytes;
  };
  "a LAN whose gateway is known has no use for a DHCP server, and another has" = {
    expected = {
      lone = [
        "DHCP=no"
        "Gateway=192.168.2.1"
        "DNS=192.168.2.1"
        "DNS=9.9.9.9"
      ];
      switch = [ "DHCP=ipv4" ];
      cable = [ "DHCP=no" ];
    };
    actual = lib.genAttrs [ "lone" "switch" "cable" ] (
      name:
      lib.filter (line: builtins.match "(DHCP|Gateway|DNS)=.*" line != null) (
        lib.splitString "\n" (text "20-${name}")
      )
    );
  };
  "no neighbour on the LAN answers for a name" = {
    expected = true;
    actual = lib.hasInfix "LLMNR=false" config.environment.etc."systemd/resolved.conf".text;
  };
  "the network is online when the LAN is, whether or not a cable is plugged in" = {
    expected = {
      any = true;
      lan = true;
      cable = true;
    };
    actual = {
      any = config.systemd.network.wait-online.anyInterface;
      lan = lib.hasInfix "RequiredForOnline=routable" (text "20-switch");
      cable = lib.hasInfix "RequiredForOnline=false" (text "20-cable");
    };
  };
}
