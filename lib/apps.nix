# `nix run .#deploy` and the like: the driver's commands, with all the programs that they need.
{ lib, revision }:
pkgs:
let
  app = name: command: {
    type = "app";
    program = lib.getExe (
      pkgs.writeShellApplication {
        inherit name;
        runtimeInputs = [ pkgs.nixwulf ];
        text = ''
          # Records say which flake measured; an installed driver has no git to ask.
          export NIXWULF_REVISION=${lib.escapeShellArg revision}
          exec nixwulf ${command} "$@"
        '';
      }
    );
    meta.description = "nixwulf ${command}";
  };
in
lib.genAttrs [ "bench" "deploy" "update" ] (command: app "nixwulf-${command}" command)
// {
  default = app "nixwulf" "";
}
