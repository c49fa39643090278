# From a cluster file to a flake's outputs: systems of its nodes, images of its platforms, apps.
{
  inputs,
  lib,
  inventory,
  platforms,
  platformFacts,
  nixosModules,
  pkgs,
  pkgsOfPlatform,
  eachSystem,
  commands,
  formatter,
}:
let
  bare = import ./bare.nix;
  managed = cluster: lib.filter (node: node.managed) cluster.nodes;
  linux = cluster: lib.filter (node: lib.hasSuffix "-linux" node.system) (managed cluster);
  darwin = cluster: lib.filter (node: lib.hasSuffix "-darwin" node.system) (managed cluster);

  # Values of nixwulf.* options that the cluster file gives; errors in them name that file.
  optionsOf =
    cluster: node:
    map (options: lib.setDefaultModuleLocation cluster.source { nixwulf = options; }) [
      cluster.options
      node.options
    ];

  shared =
    own: cluster: node:
    [
      platforms.${node.platform}
      (lib.setDefaultModuleLocation cluster.source (import ./node.nix { inherit cluster node; }))
      { nixpkgs.pkgs = own.pkgsOfPlatform.${node.platform}; }
    ]
    ++ optionsOf cluster node
    ++ own.modules;

  nixosSystem =
    own: cluster: node:
    inputs.nixpkgs.lib.nixosSystem {
      modules = lib.attrValues nixosModules ++ shared own cluster node;
    };

  darwinSystem =
    own: cluster: node:
    inputs.nix-darwin.lib.darwinSystem {
      modules = [ nixosModules.cluster ] ++ shared own cluster node;
    };

  systems =
    make: cluster: nodes:
    lib.listToAttrs (
      map (node: lib.nameValuePair "${cluster.name}-${node.name}" (make cluster node)) nodes
    );
in
rec {
  # The system of an installer that lets in the keys given; `platform` names a folder of nixos/platforms, `kind` a file of
  # nixos/images.
  installer =
    {
      platform,
      sshKeys,
      source ? "this image",
      kind ? platformFacts.${platform}.install.image or null,
    }:
    let
      facts = platformFacts.${platform};
    in
    if kind == null then
      throw "${source}: platform '${platform}' has no image, because ${facts.install.reason}; leave it out of the images."
    else
      inputs.nixpkgs.lib.nixosSystem {
        modules = lib.attrValues nixosModules ++ [
          platforms.${platform}
          (../nixos/images + "/${kind}.nix")
          {
            nixpkgs.pkgs = (pkgsOfPlatform { }).${platform};
            users.users.root.openssh.authorizedKeys.keys = sshKeys;
          }
        ];
      };

  mkImage = arguments: (installer arguments).config.system.build.image;

  # The installers of some clusters' platforms, by system, with the keys of every cluster that has the platform: an image,
  # and where a running system can start it, a tarball for kexec.
  imagesOf =
    clusters:
    let
      nodes = lib.concatMap (
        cluster:
        map (node: {
          inherit (node) platform facts;
          inherit cluster;
        }) (managed cluster)
      ) clusters;
      imaged = lib.filter (node: node.facts ? install.image) nodes;
      ofPlatform =
        platform: same:
        let
          facts = platformFacts.${platform};
          named = name: image: { ${name} = bare name facts.system image; };
          arguments = {
            inherit platform;
            sshKeys = lib.unique (lib.concatMap (node: node.cluster.sshKeys) same);
            source = (lib.head same).cluster.source;
          };
        in
        named "image-${platform}" (mkImage arguments)
        // lib.optionalAttrs (facts.install.method == "kexec") (
          named "kexec-${platform}" (mkImage (arguments // { kind = "kexec"; }))
        );
    in
    lib.mapAttrs (
      _: ofSystem: lib.concatMapAttrs ofPlatform (lib.groupBy (node: node.platform) ofSystem)
    ) (lib.groupBy (node: node.facts.system) imaged);

  nodesOf =
    {
      modules ? [ ],
      nixpkgs ? { },
    }:
    let
      own = {
        inherit modules;
        pkgsOfPlatform = pkgsOfPlatform nixpkgs;
      };
    in
    cluster: {
      nixosConfigurations = systems (nixosSystem own) cluster (linux cluster);
      darwinConfigurations = systems (darwinSystem own) cluster (darwin cluster);
    };

  # The file that `nixwulf deploy --prebuilt` takes: what it would ask the flake for, built, for each Linux node.
  deployment =
    {
      cluster,
      modules ? [ ],
      nixpkgs ? { },
      installers ? (imagesOf [ cluster ]),
    }:
    system:
    let
      systems = (nodesOf { inherit modules nixpkgs; } cluster).nixosConfigurations;
      layout = import ../driver/nixwulf/ops/deploy/layout.nix;
    in
    pkgs.${system}.writeText "deployment-${cluster.name}.json" (
      builtins.toJSON {
        cluster = cluster.name;
        nodes = lib.listToAttrs (
          map (
            node:
            let
              evaluated = systems."${cluster.name}-${node.name}";
              inherit (evaluated.config.system) build;
            in
            lib.nameValuePair node.name {
              system = build.toplevel;
              disko = build.diskoScript;
              kexec = installers.${node.system}."kexec-${node.platform}" or null;
              layout = layout evaluated;
            }
          ) (linux cluster)
        );
      }
    );

  # The outputs of a user's own flake: `modules` come on top of what the cluster file says; `nixpkgs` is the `config` and
  # the `overlays` of the nodes' packages, which no module can set.
  mkCluster =
    {
      file,
      modules ? [ ],
      nixpkgs ? { },
    }:
    let
      cluster = inventory.own file;
    in
    nodesOf { inherit modules nixpkgs; } cluster
    // {
      packages = eachSystem (
        system:
        (imagesOf [ cluster ]).${system} or { }
        // {
          default = pkgs.${system}.nixwulf;
        }
      );
      # Not among the packages, all of which 'nix flake check' evaluates: it has every node in full.
      legacyPackages = eachSystem (system: {
        deployments.${cluster.name} = deployment { inherit cluster modules nixpkgs; } system;
      });
      apps = eachSystem (system: commands.apps pkgs.${system});
      formatter = eachSystem formatter;
    };
}
