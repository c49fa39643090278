{
  description = "Image, measure and explain small desk-side clusters";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    disko = {
      url = "github:nix-community/disko";
      inputs.nixpkgs.follows = "nixpkgs";
    };
    nix-darwin = {
      url = "github:nix-darwin/nix-darwin";
      inputs.nixpkgs.follows = "nixpkgs";
    };
    # Of these three only files are taken: as flakes they would bring inputs that no node needs.
    nixos-hardware = {
      url = "github:NixOS/nixos-hardware";
      flake = false;
    };
    nixos-dgx-spark = {
      url = "github:graham33/nixos-dgx-spark";
      flake = false;
    };
    thunderbolt-ibverbs = {
      url = "github:hellas-ai/thunderbolt-ibverbs";
      flake = false;
    };
  };

  outputs =
    inputs:
    let
      inherit (inputs.nixpkgs) lib;
      nixwulf = import ./lib inputs;
      inherit (nixwulf) eachSystem folders pkgs;

      clusters = lib.mapAttrs (_: nixwulf.inventory.checked) (folders.withSuffix ".toml" ./clusters);
      nodes = map (nixwulf.cluster.nodesOf { }) (lib.attrValues clusters);
      images = nixwulf.cluster.imagesOf (lib.attrValues clusters);

      options = import ./lib/options.nix { inherit lib nixwulf; };

      packageNames = lib.attrNames (nixwulf.overlay { } pkgs.x86_64-linux);

      vmTests =
        system:
        import ./nixos/tests {
          inherit lib nixwulf;
          pkgs = pkgs.${system};
        };
      checksOf = import ./tests/nix {
        inherit lib nixwulf;
        outputs = inputs.self;
      };
    in
    {
      nixosConfigurations = lib.mergeAttrsList (lib.catAttrs "nixosConfigurations" nodes);
      darwinConfigurations = lib.mergeAttrsList (lib.catAttrs "darwinConfigurations" nodes);
      # For a system of one's own: all of them and the packages that they need. Each alone wants the overlay beside it.
      nixosModules = nixwulf.nixosModules // {
        default = {
          imports = lib.attrValues nixwulf.nixosModules;
          nixpkgs.overlays = [ nixwulf.overlay ];
        };
      };
      overlays.default = nixwulf.overlay;

      packages = eachSystem (
        system:
        lib.filterAttrs (_: lib.meta.availableOn pkgs.${system}.stdenv.hostPlatform) (
          lib.getAttrs packageNames pkgs.${system}
        )
        // images.${system} or { }
        // {
          options = options.reference pkgs.${system};
        }
      );

      # Not among packages and checks, all of which 'nix flake check' evaluates: they have every node in full. The tests
      # here have `nodes` and `driverInteractive`, which their checks do not keep.
      legacyPackages = eachSystem (system: {
        tests = lib.optionalAttrs (system == "x86_64-linux") (vmTests system);
        deployments = lib.mapAttrs' (
          _: cluster:
          lib.nameValuePair cluster.name (
            nixwulf.cluster.deployment {
              inherit cluster;
              installers = images;
            } system
          )
        ) clusters;
      });

      apps = eachSystem (system: nixwulf.commands.apps pkgs.${system});

      devShells = eachSystem (system: {
        default = nixwulf.shell system;
      });

      templates.default = {
        path = ./templates/cluster;
        description = "A cluster of your own: its nodes, its sweep, and the commands that deploy and measure it";
      };

      checks = eachSystem (
        system:
        checksOf pkgs.${system}
        // lib.optionalAttrs (system == "x86_64-linux") (
          lib.mapAttrs' (name: lib.nameValuePair "vm-${name}") (
            builtins.mapAttrs (import ./tests/nix/vm.nix { inherit lib system; }) (vmTests system)
          )
        )
      );

      formatter = eachSystem nixwulf.formatter;

      lib = {
        inherit (nixwulf.cluster) mkCluster mkImage;
        inventories = lib.mapAttrs (_: nixwulf.inventory.summary) clusters;
        platforms = nixwulf.platformFacts;
      };
    };
}
