# The first two rungs of checks: everything evaluates, and what was rendered is right.
# A file in asserts/ is a check; a cluster in wrong/ is one that must be refused with the sentence of its first line.
{
  lib,
  pkgs,
  nixwulf,
  outputs,
}:
let
  inherit (nixwulf) folders;

  # The configuration of a node that has some modules on top of the generic platform.
  evaluate =
    modules:
    (lib.nixosSystem {
      modules =
        lib.attrValues nixwulf.nixosModules
        ++ [
          ../../nixos/platforms/generic-x86_64
          {
            nixpkgs.pkgs = nixwulf.pkgs.x86_64-linux;
            networking.hostName = "node";
            nixwulf.disk.device = "/dev/disk/by-id/test";
            system.stateVersion = lib.trivial.release;
          }
        ]
        ++ modules;
    }).config;

  # What a configuration's assertions say against it.
  failures = config: map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);

  # What is wrong with a cluster file: with the file itself, else with the systems of its nodes.
  complaints =
    file:
    let
      cluster = nixwulf.inventory.read file;
      systems = (nixwulf.cluster.nodesOf { } cluster).nixosConfigurations;
    in
    if cluster.problems != [ ] then
      cluster.problems
    else
      lib.concatMap (system: failures system.config) (lib.attrValues systems);

  # A check that fails, while it is evaluated, with the sentences that do not hold.
  assertAll =
    name: tests:
    let
      wrong = lib.filterAttrs (_: test: test.actual != test.expected) tests;
      show = lib.generators.toPretty { multiline = false; };
      report = lib.mapAttrsToList (
        sentence: test: "${sentence}: expected ${show test.expected}, found ${show test.actual}"
      ) wrong;
    in
    if wrong == { } then
      pkgs.writeText name (lib.concatLines (lib.attrNames tests))
    else
      throw "${name}: ${lib.concatStringsSep "\n" report}";

  asserts = lib.mapAttrs' (
    name: path:
    lib.nameValuePair "asserts-${name}" (
      assertAll name (
        import path {
          inherit
            lib
            pkgs
            nixwulf
            outputs
            evaluate
            failures
            ;
        }
      )
    )
  ) (folders.nixFiles ./asserts);

  wrong = lib.mapAttrs' (
    name: file:
    let
      expected = lib.removePrefix "# " (lib.head (lib.splitString "\n" (builtins.readFile file)));
      found = complaints file;
    in
    lib.nameValuePair "wrong-${name}" (
      assertAll name {
        "it is refused with the sentence of its first line" = {
          expected = [ expected ];
          actual = lib.intersectLists [ expected ] found ++ lib.optionals (!lib.elem expected found) found;
        };
      }
    )
  ) (folders.withSuffix ".toml" ./wrong);

  # What Nix writes in shell; `scripts` is name -> text, for tests that can run it but build nothing.
  shellScripts =
    let
      scripts = import ./scripts.nix {
        inherit
          lib
          pkgs
          outputs
          ;
      };
      files = lib.mapAttrs (name: pkgs.writeText "${name}.sh") scripts;
    in
    pkgs.runCommand "shell-scripts" {
      nativeBuildInputs = [ pkgs.shellcheck-minimal ];
      passthru = { inherit scripts; };
    } "shellcheck ${lib.concatStringsSep " " (lib.attrValues files)} && touch $out";

  # Evaluated to a derivation, and no further: the text has the derivation's name without depending on it.
  evaluated =
    prefix: derivations:
    lib.mapAttrs' (
      name: derivation:
      lib.nameValuePair "${prefix}-${name}" (
        pkgs.writeText name (builtins.unsafeDiscardStringContext derivation.drvPath)
      )
    ) derivations;
in
asserts
// wrong
// {
  shell-scripts = shellScripts;
}
// evaluated "nixos" (
  lib.mapAttrs (_: s: s.config.system.build.toplevel) outputs.nixosConfigurations
)
// evaluated "darwin" (lib.mapAttrs (_: s: s.system) outputs.darwinConfigurations)
// lib.concatMapAttrs (system: evaluated system) outputs.packages
