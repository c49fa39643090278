# `nix run .#deploy` and the like: the driver's commands, with all the programs that they need.
{ lib, revision }:
rec {
  # name -> the program of an app.
  programs =
    pkgs:
    let
      program =
        driver: name: command:
        pkgs.writeShellApplication {
          inherit name;
          runtimeInputs = [ driver ];
          text = ''
            # Records say which flake measured; an installed driver has no git to ask.
            export NIXWULF_REVISION=${lib.escapeShellArg revision}
            exec nixwulf ${command} "$@"
          '';
        };
    in
    lib.genAttrs [ "deploy" "update" ] (command: program pkgs.nixwulf "nixwulf-${command}" command)
    // {
      # Without a cluster it runs the lab.
      bench = program pkgs.nixwulf-lab "nixwulf-bench" "bench";
      default = program pkgs.nixwulf "nixwulf" "";
    };

  apps =
    pkgs:
    lib.mapAttrs (name: program: {
      type = "app";
      program = lib.getExe program;
      meta.description = if name == "default" then "The driver" else "nixwulf ${name}";
    }) (programs pkgs);
}
