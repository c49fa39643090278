# What the reference of the options is rendered from (packages.SYSTEM.options).
{
  lib,
  nixwulf,
  pkgs,
  outputs,
  ...
}:
let
  options = import ../../../lib/options.nix { inherit lib nixwulf; };
  names = map (option: option.name) options.list;
  without = test: map (option: option.name) (lib.filter (option: !test option) options.list);
in
{
  "each option of each module is in the reference" = {
    expected = [ ];
    actual = lib.subtractLists names [
      "nixwulf.bench-node.enable"
      "nixwulf.cluster.sshKeys"
      "nixwulf.disk.device"
      "nixwulf.fabrics.<name>.kind"
      "nixwulf.llama-rpc.instances.<name>.port"
      "nixwulf.vllm.rayTokenFile"
    ];
  };
  "each option has a description" = {
    expected = [ ];
    actual = without (option: option.description or null != null);
  };
  "each option is declared in a file of this flake" = {
    expected = [ ];
    actual = without (
      option: lib.all (file: lib.hasInfix "/modules/" (toString file)) option.declarations
    );
  };
  "the reference evaluates" = {
    expected = true;
    actual = lib.hasSuffix ".drv" outputs.packages.${pkgs.stdenv.hostPlatform.system}.options.drvPath;
  };
}
