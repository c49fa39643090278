# `nix run .#deploy` and the like: the driver's commands, with all the programs that they need.
{ lib }:
pkgs:
lib.genAttrs
  [
    "bench"
    "deploy"
    "update"
  ]
  (command: {
    type = "app";
    program = lib.getExe (
      pkgs.writeShellApplication {
        name = "nixwulf-${command}";
        runtimeInputs = [ pkgs.nixwulf ];
        text = ''exec nixwulf ${command} "$@"'';
      }
    );
    meta.description = "nixwulf ${command}";
  })
