# What nixos/tests/covers.toml says of the VM tests, which docs/what-ran.md shows.
{ lib, outputs, ... }:
let
  covers = fromTOML (builtins.readFile ../../../nixos/tests/covers.toml);
  tests = lib.mapAttrs' (name: lib.nameValuePair (lib.removePrefix "vm-" name)) (
    lib.filterAttrs (name: _: lib.hasPrefix "vm-" name) outputs.checks.x86_64-linux
  );

  isOff =
    machine: module:
    let
      options = machine.nixwulf.${module} or { };
    in
    !(options.enable or true) || options.instances or null == { };

  offIn =
    name: test:
    let
      modules = map (lib.removePrefix "modules/") (
        lib.filter (lib.hasPrefix "modules/") covers.${name} or [ ]
      );
    in
    map (module: "${name}: ${module}") (
      lib.filter (
        module: lib.all (machine: isOff machine module) (lib.attrValues test.nodes)
      ) modules
    );
in
{
  "each VM test says what it shows" = {
    actual = lib.attrNames covers;
    expected = lib.attrNames tests;
  };
  "a module that a test shows is on in one of its machines" = {
    actual = lib.concatLists (lib.mapAttrsToList offIn tests);
    expected = [ ];
  };
}
