# What working on Nixwulf takes: `make test` finds all of it on PATH.
{ pkgs }:
pkgs.mkShellNoCC {
  inputsFrom = [ pkgs.nixwulf ];
  packages =
    pkgs.nixwulf.programs
    ++ (with pkgs; [
      deadnix
      mypy
      nixfmt-tree
      ruff
      shellcheck
      python3Packages.hypothesis
      python3Packages.pandas-stubs
      python3Packages.pytest
      python3Packages.pytest-timeout
      python3Packages.types-pyyaml
    ]);
}
