# The first two rungs of checks: everything evaluates, and what was rendered is right.
# A file in asserts/ is a check; a cluster in wrong/ is one that must be refused with the sentence of its first line.
# The result is a function of a system's packages. What is asserted is the same for all systems, and is evaluated once.
{
  lib,
  nixwulf,
  outputs,
}:
let
  inherit (nixwulf) folders;
  # Of the machine that `evaluate` makes.
  pkgs = nixwulf.pkgs.x86_64-linux;

  # The configuration of a node that has some modules on top of the generic platform.
  evaluate =
    modules:
    (lib.nixosSystem {
      modules =
        lib.attrValues nixwulf.nixosModules
        ++ [
          ../../nixos/platforms/generic-x86_64
          {
            nixpkgs.pkgs = pkgs;
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

  # The sentences of a check; while they are evaluated it fails with those that do not hold.
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
      lib.concatLines (lib.attrNames tests)
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

  # What Nix writes in shell, without the programs that it names: they are not needed to check it.
  scripts = lib.mapAttrs (_: builtins.unsafeDiscardStringContext) (
    import ./scripts.nix { inherit lib pkgs outputs; }
  );
  # `scripts` is name -> text, for tests that can run it but build nothing.
  shellScripts =
    pkgs:
    let
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
      lib.nameValuePair "${prefix}-${name}" (builtins.unsafeDiscardStringContext derivation.drvPath)
    ) derivations;

  # Of nodes that differ in name, addresses and disk only, the first: a system in full is 0.3 GB, and the assertions of
  # all of them `nix flake check` evaluates anyway.
  kinds =
    let
      kind =
        node:
        builtins.toJSON {
          inherit (node) platform options;
          ends = map (port: removeAttrs port.end [ "address" ]) node.ports;
        };
      firsts = cluster: map lib.head (lib.attrValues (lib.groupBy kind cluster.nodes));
    in
    lib.concatMap (cluster: map (node: "${cluster.name}-${node.name}") (firsts cluster)) (
      map nixwulf.inventory.read (lib.attrValues (folders.withSuffix ".toml" ../../clusters))
    );
  ofEachKind = lib.filterAttrs (name: _: lib.elem name kinds);

  texts =
    asserts
    // wrong
    // evaluated "nixos" (
      lib.mapAttrs (_: s: s.config.system.build.toplevel) (ofEachKind outputs.nixosConfigurations)
    )
    // evaluated "darwin" (lib.mapAttrs (_: s: s.system) (ofEachKind outputs.darwinConfigurations))
    // lib.concatMapAttrs (system: evaluated system) outputs.packages;
in
pkgs:
# Not writeText, which looks at a text when its derivation is named: `nix flake show` would evaluate them all.
lib.mapAttrs (name: text: pkgs.writeTextFile { inherit name text; }) texts
// {
  shell-scripts = shellScripts pkgs;
}
# Many of them are about the lab, and that is Linux'.
// lib.optionalAttrs pkgs.stdenv.hostPlatform.isLinux {
  driver-tests = pkgs.nixwulf.overridePythonAttrs { doCheck = true; };
}
