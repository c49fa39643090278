{ evaluate, ... }:
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
    }
  ];
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
}
