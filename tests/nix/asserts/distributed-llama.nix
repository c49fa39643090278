{
  lib,
  pkgs,
  evaluate,
  ...
}:
let
  config = evaluate [
    {
      nixwulf.fabrics.switch = {
        kind = "ethernet";
        interface = "end0";
        address = "192.168.1.41";
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 1;
      };
      nixwulf.distributed-llama = {
        enable = true;
        fabric = "switch";
        package = pkgs.writeShellScriptBin "dllama" "";
      };
    }
  ];
  service = config.systemd.services.distributed-llama;
  inherit (config.systemd.units."distributed-llama.service") text;
  inherit (config.networking) firewall;
in
{
  "the worker listens on the fabric's address, with a thread a core" = {
    expected = "/bin/dllama worker --host 192.168.1.41 --port 9999 --nthreads 4";
    actual = lib.removePrefix (toString config.nixwulf.distributed-llama.package) (
      lib.replaceString "\"" "" service.serviceConfig.ExecStart
    );
  };
  "the port is open on the fabric's interface and nowhere else" = {
    expected = {
      end0 = [ 9999 ];
      everywhere = false;
      interfaces = [ "end0" ];
    };
    actual = {
      end0 = firewall.interfaces.end0.allowedTCPPorts;
      everywhere = lib.elem 9999 firewall.allowedTCPPorts;
      interfaces = lib.attrNames firewall.interfaces;
    };
  };
  "it is nobody, and is started again whenever it ends" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line text) [
      "DynamicUser=true"
      "ProtectSystem=strict"
      "MemoryDenyWriteExecute=true"
      "Restart=always"
      "BindsTo=sys-subsystem-net-devices-end0.device"
    ];
  };
}
