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
