# A VM test as a check of the flake: nixos/tests/covers.toml is right about it, and its machines' configurations are not
# kept. It takes one test, for whatever has a name for all of them keeps them all.
{ lib, system }:
let
  covers = fromTOML (builtins.readFile ../../nixos/tests/covers.toml);
  bare = import ../../lib/bare.nix;

  isOff =
    machine: module:
    let
      options = machine.nixwulf.${module} or { };
    in
    !(options.enable or true) || options.instances or null == { };
in
name: test:
let
  modules = map (lib.removePrefix "modules/") (
    lib.filter (lib.hasPrefix "modules/") covers.${name} or [ ]
  );
  # A machine of nixos/tests/machines has two systems: the installer's, and its own. Others switch to one.
  machines = lib.concatMap (
    machine:
    [ machine ]
    ++ lib.optional (machine.system.build ? installed) machine.system.build.installed.config
    ++ lib.mapAttrsToList (_: other: other.configuration) machine.specialisation
  ) (lib.attrValues test.nodes);
  off = lib.filter (module: lib.all (machine: isOff machine module) machines) modules;
in
bare "vm-test-run-${name}" system (
  if off == [ ] then
    test
  else
    throw "covers.toml: ${name} shows ${lib.concatStringsSep " and " off}, which no machine of it has on"
)
