# What the tests of `nixwulf update` share: a node on its own disk, a desk with a file for --prebuilt of each variant of
# the node's system, and the script's functions.
{
  desk,
  installed,
  lib,
  pkgs,
}:
variants:
let
  layout = import ../../../driver/nixwulf/ops/deploy/layout.nix;
  systemsOf =
    nodes:
    lib.mapAttrs (
      _: module: nodes.node1.system.build.installed.extendModules { modules = [ module ]; }
    ) variants;
in
{
  nodes = {
    node1 = installed { platform = "generic-x86_64"; };
    desk =
      { nodes, ... }:
      {
        imports = [ desk ];
        environment.etc = lib.concatMapAttrs (name: system: {
          "systems/${name}.json".source = pkgs.writeText "deployment-${name}.json" (
            builtins.toJSON {
              cluster = "vms";
              nodes.node1 = {
                system = system.config.system.build.toplevel;
                disko = system.config.system.build.diskoScript;
                kexec = null;
                layout = layout system;
              };
            }
          );
        }) (systemsOf nodes);
      };
  };

  script = nodes: ''
    SYSTEMS: dict[str, str] = ${
      builtins.toJSON (
        lib.mapAttrs (_: system: "${system.config.system.build.toplevel}") (systemsOf nodes)
      )
    }
    ${lib.readFile ./updates.py}
  '';
}
