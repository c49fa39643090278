# Puts the flake's parts together; flake.nix says what becomes an output.
inputs:
let
  inherit (inputs.nixpkgs) lib;
  folders = import ./folders.nix { inherit lib; };

  systems = [
    "x86_64-linux"
    "aarch64-linux"
    "aarch64-darwin"
  ];
  eachSystem = lib.genAttrs systems;

  platformFacts = lib.mapAttrs (_: path: fromTOML (builtins.readFile path)) (
    folders.withSuffix ".toml" ../driver/nixwulf/data/platforms
  );
  inventory = import ./inventory.nix { inherit lib platformFacts; };
  commands = import ./apps.nix {
    inherit lib;
    revision = inputs.self.shortRev or inputs.self.dirtyShortRev or "";
  };

  # A module that needs more than NixOS gives is a function of that; all others are plain modules.
  withArguments =
    arguments: path:
    let
      module = import path;
      wanted = lib.optionalAttrs (lib.isFunction module) (lib.functionArgs module);
    in
    if wanted != { } && lib.all (name: arguments ? ${name}) (lib.attrNames wanted) then
      lib.setDefaultModuleLocation path (module (lib.intersectAttrs wanted arguments))
    else
      path;

  platforms = lib.mapAttrs (
    name:
    withArguments {
      inherit inputs;
      facts = platformFacts.${name};
    }
  ) (folders.nixFiles ../nixos/platforms);
  nixosModules = lib.mapAttrs (_: withArguments { inherit inputs; }) (folders.nixFiles ../modules);

  overlay = import ../packages;

  nixpkgsWith =
    settings:
    import inputs.nixpkgs (
      settings
      // {
        config = {
          # What nixwulf-llama-cpp-cuda is built with. Allowed here, for nobody could allow it in a flake's packages.
          allowUnfreePackages = [
            "cuda_cccl"
            "cuda_cudart"
            "cuda_nvcc"
            "libcublas"
          ];
        }
        // settings.config or { };
        overlays = [ overlay ] ++ settings.overlays or [ ];
      }
    );
  pkgs = eachSystem (system: nixpkgsWith { inherit system; });

  # One nixpkgs for all nodes of a platform: instantiating it is most of the cost of a node's evaluation.
  pkgsOfPlatform = lib.mapAttrs (
    name: facts:
    let
      settings = ../nixos/platforms + "/${name}/nixpkgs.nix";
    in
    if builtins.pathExists settings then
      nixpkgsWith (import settings { inherit inputs; } // { inherit (facts) system; })
    else
      pkgs.${facts.system}
  ) platformFacts;

  # nixfmt's output byte for byte, by a program that comes without a Haskell compiler.
  formatter =
    system: pkgs.${system}.nixfmt-tree.override { nixfmtPackage = pkgs.${system}.nixfmt-rs; };

  shell =
    system:
    import ./shell.nix {
      pkgs = pkgs.${system};
      formatter = formatter system;
    };

  cluster = import ./cluster.nix {
    inherit
      inputs
      lib
      inventory
      platforms
      platformFacts
      nixosModules
      pkgs
      pkgsOfPlatform
      commands
      eachSystem
      formatter
      ;
  };
in
{
  inherit
    cluster
    commands
    eachSystem
    folders
    formatter
    inventory
    nixosModules
    overlay
    pkgs
    platformFacts
    shell
    ;
}
