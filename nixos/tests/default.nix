# VM tests, the third rung of checks: each other file of this folder is one, and is found by its name; each of
# per-platform/ is one for every x86_64 platform. prelude.py stands before every script, machines/ is what they share.
# They need KVM to be quick; `nix build .#checks.x86_64-linux.vm-NAME -L` runs one.
{
  lib,
  pkgs,
  nixwulf,
}:
let
  keys = import (pkgs.path + "/nixos/tests/ssh-keys.nix") pkgs;

  # Every machine of a test is a node of a cluster with one switch, and lets the desk in.
  node =
    { config, nodes, ... }:
    {
      imports = lib.attrValues nixwulf.nixosModules;
      nixwulf.cluster.sshKeys = [ keys.snakeOilPublicKey ];
      nixwulf.cluster.nodes = map (name: {
        inherit name;
        addresses = lib.mapAttrs (_: fabric: fabric.address) nodes.${name}.nixwulf.fabrics;
      }) (lib.remove "desk" (lib.attrNames nodes));
      nixwulf.fabrics.switch = {
        kind = "ethernet";
        interface = "eth1";
        address = config.networking.primaryIPAddress;
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 1;
      };
      virtualisation.memorySize = lib.mkDefault 1024;
      # The driver wants 1 GiB free, and 1 GiB is what NixOS gives a test's machine.
      virtualisation.diskSize = 4096;
    };

  # A test's networks are /24.
  subnetOf = address: lib.concatStringsSep "." (lib.take 3 (lib.splitString "." address)) + ".0/24";

  fabricText = name: fabric: ''

    [fabrics.${name}]
    kind = "${fabric.kind}"
    speed_gbps = ${toString fabric.speedGbps}
    mtu = ${toString fabric.mtu}
    subnet = "${subnetOf fabric.address}"
  '';

  placeText =
    name: fabric:
    ''

      [nodes.fabrics.${name}]
      interface = "${fabric.interface}"
      address = "${fabric.address}"
    ''
    + lib.optionalString (fabric.rdmaDevice != null) ''
      rdma_device = "${fabric.rdmaDevice}"
    ''
    + lib.optionalString (fabric.gidIndex != null) ''
      gid_index = ${toString fabric.gidIndex}
    '';

  # The machine at which somebody sits: it has the driver, the key, and a cluster file of the other machines.
  desk =
    { nodes, ... }:
    let
      # What is to be on a machine's disk, where its node is the installer.
      others = lib.mapAttrs (_: node: node.system.build.installed.config or node) (
        removeAttrs nodes [ "desk" ]
      );
      inherit (lib.head (lib.attrValues others)) nixwulf;
      join = render: set: lib.concatStrings (lib.mapAttrsToList render set);
    in
    {
      environment.systemPackages = [ pkgs.nixwulf ];
      environment.etc."desk-key" = {
        source = keys.snakeOilPrivateKey;
        mode = "0400";
      };
      programs.ssh.extraConfig = ''
        Host *
          IdentityFile /etc/desk-key
          StrictHostKeyChecking accept-new
      '';
      environment.etc."cluster.toml".text = ''
        name = "vms"

        [deploy]
        ssh_keys = ["${keys.snakeOilPublicKey}"]
      ''
      + join fabricText nixwulf.fabrics
      + join (name: other: ''

        [[nodes]]
        name = "${name}"
        platform = "generic-x86_64"
        ssh = "root@${name}"
        ${lib.optionalString (other.nixwulf.disk.device != null) ''disk = "${other.nixwulf.disk.device}"''}
        ${join placeText other.nixwulf.fabrics}'') others;
      virtualisation.memorySize = 2048;
    };

  installed = import ./machines/installed.nix { inherit lib pkgs nixwulf; };
  updates = import ./machines/updates.nix {
    inherit
      desk
      installed
      lib
      pkgs
      ;
  };
  knocks = ./machines/knocks.nix;

  # First and last of each range, as Python reads it.
  ports = import ../../lib/ports.nix { inherit lib; };
  rangesOf = map (
    port:
    if lib.isInt port then
      [
        port
        port
      ]
    else
      [
        port.from
        port.to
      ]
  );
  enginePorts = {
    tcp = rangesOf (lib.attrValues ports.tcp ++ lib.attrValues ports.ranges);
    udp = rangesOf (lib.attrValues ports.udp);
  };

  # The script, with what prelude.py has and what it has to know of the machines that boot from their own disk.
  withPrelude =
    test:
    test
    // {
      testScript =
        { nodes, containers }:
        let
          facts = lib.mapAttrs (_: node: node.system.build.installed.facts) (
            lib.filterAttrs (_: node: node.system.build ? installed) nodes
          );
        in
        ''
          INSTALLED: dict[str, dict[str, str]] = ${builtins.toJSON facts}
          # The ports that engines listen on for the cluster's other nodes.
          ENGINES: dict[str, set[int]] = {
              protocol: {port for first, last in ranges for port in range(first, last + 1)}
              for protocol, ranges in ${builtins.toJSON enginePorts}.items()
          }
          ${lib.readFile ./prelude.py}
        ''
        + (
          if lib.isFunction test.testScript then
            test.testScript (
              builtins.intersectAttrs (lib.functionArgs test.testScript) { inherit nodes containers; }
            )
          else
            test.testScript
        );
    };

  make =
    name: test:
    pkgs.testers.runNixOSTest {
      imports = [ (lib.mirrorFunctionArgs test (arguments: withPrelude (test arguments))) ];
      inherit name;
      defaults = node;
      _module.args = {
        inherit
          desk
          installed
          knocks
          nixwulf
          updates
          ;
        inherit (lib) nixosSystem;
      };
    };

  platforms = lib.attrNames (
    lib.filterAttrs (
      name: facts: facts.system == pkgs.stdenv.hostPlatform.system && nixwulf.platforms ? ${name}
    ) nixwulf.platformFacts
  );
  perPlatform = lib.concatMapAttrs (
    name: path:
    lib.listToAttrs (
      map (platform: lib.nameValuePair "${name}-${platform}" (import path platform)) platforms
    )
  ) (nixwulf.folders.nixFiles ./per-platform);
  files = lib.mapAttrs (_: import) (removeAttrs (nixwulf.folders.nixFiles ./.) [ "default" ]);
in
lib.mapAttrs make (files // perPlatform)
