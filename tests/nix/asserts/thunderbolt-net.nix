{ evaluate, lib, ... }:
let
  link = interface: number: {
    kind = "thunderbolt-net";
    inherit interface;
    address = "10.10.${toString number}.1";
    prefixLength = 30;
    mtu = 65520;
    speedGbps = 20;
  };
  config = evaluate [
    {
      nixwulf.fabrics = {
        left = link "tb-left" 0;
        right = link "tb-right" 1;
      };
      nixwulf.thunderbolt-net.ports = {
        tb-left = "pci-0000:c6:00.5";
        tb-right = "pci-0000:c6:00.6";
      };
    }
  ];
in
{
  "a fabric of this kind loads the drivers" = {
    expected = [ ];
    actual = lib.subtractLists config.boot.kernelModules [
      "thunderbolt"
      "thunderbolt-net"
    ];
  };
  "an interface is named by the port that its cable is in" = {
    expected = ''
      [Match]
      Driver=thunderbolt-net
      Path=pci-0000:c6:00.5

      [Link]
      MACAddressPolicy=none
      Name=tb-left

    '';
    actual = config.systemd.network.units."10-tb-left.link".text;
  };
  "its MTU is the fabric's, up to what the driver can do" = {
    expected = "65520";
    actual = config.systemd.network.networks."20-right".linkConfig.MTUBytes;
  };
  "two links in subnets of their own are fine" = {
    expected = [ ];
    actual = lib.filter (a: !a.assertion && lib.hasInfix "Thunderbolt" a.message) config.assertions;
  };
}
