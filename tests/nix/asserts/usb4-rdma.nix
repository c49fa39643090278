{ evaluate, lib, ... }:
let
  nodeWith =
    settings:
    evaluate [
      {
        nixwulf.fabrics.usb4 = {
          kind = "usb4-rdma";
          interface = "thunderbolt0";
          address = "10.10.0.1";
          prefixLength = 30;
          mtu = 9000;
          speedGbps = 40;
          rdmaDevice = "usb4_rdma0";
          gidIndex = 1;
        };
        nixwulf.usb4-rdma = settings;
      }
    ];
  config = nodeWith { parameters.lanes = "2"; };
  alone = nodeWith {
    thunderboltNet = false;
    interface = "enp1s0";
  };

  modules =
    config: lib.filter (p: lib.getName p == "thunderbolt-ibverbs") config.boot.extraModulePackages;
  options = config: config.hardware.thunderbolt-ibverbs.renderedModuleOptions;
in
{
  "the kernel module is loaded at boot, and is built for the node's kernel" = {
    expected = [
      true
      1
    ];
    actual = [
      (lib.elem "thunderbolt_ibverbs" config.boot.kernelModules)
      (lib.length (modules config))
    ];
  };
  "its parameters are in modprobe.d, before udev loads it" = {
    expected = [ ];
    actual = lib.filter (option: !lib.hasInfix option config.boot.extraModprobeConfig) [
      "options thunderbolt_ibverbs "
      "profile=linux_perf"
      "register_verbs=1"
      "roce_netdev=thunderbolt0"
      "lanes=2"
    ];
  };
  "IP goes over the same cable" = {
    expected = [
      true
      true
      false
    ];
    actual = [
      (lib.elem "thunderbolt-net" config.boot.kernelModules)
      (lib.hasInfix "tbnet=allow" (options config))
      (lib.elem "thunderbolt_net" config.boot.blacklistedKernelModules)
    ];
  };
  "or another interface gives the address, and thunderbolt-net is kept out" = {
    expected = [
      true
      true
      false
    ];
    actual = [
      (lib.hasInfix "roce_netdev=enp1s0" (options alone))
      (lib.elem "thunderbolt_net" alone.boot.blacklistedKernelModules)
      (lib.elem "thunderbolt-net" alone.boot.kernelModules)
    ];
  };
  "the node's rdma-core has the provider, and perftest is linked with it" = {
    expected = [
      "rdma-core-usb4"
      true
    ];
    actual = [
      (lib.getName config.nixwulf.rdma.package)
      (lib.any (
        p: lib.getName p == "perftest" && lib.elem (lib.getDev config.nixwulf.rdma.package) p.buildInputs
      ) config.environment.systemPackages)
    ];
  };
  "llama.cpp is linked with it too, or its RPC would find no device" = {
    expected = true;
    actual = lib.elem (lib.getDev config.nixwulf.rdma.package) (
      map lib.getDev config.nixwulf.bench-node.llamaCpp.buildInputs
    );
  };
  "no other rdma-core is on PATH" = {
    expected = [ "rdma-core-usb4" ];
    actual = lib.unique (
      lib.filter (lib.hasPrefix "rdma-core") (map lib.getName config.environment.systemPackages)
    );
  };
}
