# nixos/tests/covers.toml, which docs/what-ran.md is made from. What it says of a test, the test's check holds it to (vm.nix).
{ lib, outputs, ... }:
{
  "each VM test says what it shows" = {
    actual = map (name: "vm-${name}") (
      lib.attrNames (fromTOML (builtins.readFile ../../../nixos/tests/covers.toml))
    );
    expected = lib.filter (lib.hasPrefix "vm-") (lib.attrNames outputs.checks.x86_64-linux);
  };
}
