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
      {
        # As of a module that is imported by its path: twice is once.
        key = toString path;
        _file = path;
        imports = [ (module (lib.intersectAttrs wanted arguments)) ];
      }
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
        config = settings.config or { } // {
          # What nixwulf-llama-cpp-cuda is built with. Allowed here, for nobody could allow it in a flake's packages.
          allowUnfreePackages = [
            "cuda_cccl"
            "cuda_cudart"
            "cuda_nvcc"
            "libcublas"
          ]
          ++ settings.config.allowUnfreePackages or [ ];
        };
        overlays = [ overlay ] ++ settings.overlays or [ ];
      }
    );
  pkgs = eachSystem (system: nixpkgsWith { inherit system; });

  # `own` is what a user's flake adds: `config` and `overlays`.
  nixpkgsOfPlatforms =
    own:
    lib.mapAttrs (
      name: facts:
      let
        file = ../nixos/platforms + "/${name}/nixpkgs.nix";
        platform = lib.optionalAttrs (builtins.pathExists file) (import file { inherit inputs; });
      in
      if platform == { } && own == { } then
        pkgs.${facts.system}
      else
        nixpkgsWith {
          inherit (facts) system;
          config = platform.config or { } // own.config or { };
          overlays = platform.overlays or [ ] ++ own.overlays or [ ];
        }
    ) platformFacts;
  # One nixpkgs for all nodes of a platform: instantiating it is most of the cost of a node's evaluation.
  shared = nixpkgsOfPlatforms { };
  pkgsOfPlatform = own: if own == { } then shared else nixpkgsOfPlatforms own;

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
    platforms
    shell
    ;
}
