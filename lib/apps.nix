# `nix run .#deploy` and the like: the driver's commands, with all the programs that they need.
{ lib, revision }:
rec {
  # name -> the program of an app.
  programs =
    pkgs:
    let
      program =
        name: command:
        pkgs.writeShellApplication {
          inherit name;
          runtimeInputs = [ pkgs.nixwulf ];
          text = ''
            # Records say which flake measured; an installed driver has no git to ask.
            export NIXWULF_REVISION=${lib.escapeShellArg revision}
            exec nixwulf ${command} "$@"
          '';
        };
    in
    lib.genAttrs [ "bench" "deploy" "update" ] (command: program "nixwulf-${command}" command)
    // {
      default = program "nixwulf" "";
    };

  apps =
    pkgs:
    lib.mapAttrs (name: program: {
      type = "app";
      program = lib.getExe program;
      meta.description = if name == "default" then "The driver" else "nixwulf ${name}";
    }) (programs pkgs);
}
