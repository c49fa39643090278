# What working on Nixwulf takes: `make test` finds all of it on PATH.
{ pkgs, formatter }:
pkgs.mkShellNoCC {
  inputsFrom = [ pkgs.nixwulf-lab ];
  packages =
    pkgs.nixwulf-lab.programs
    ++ [ formatter ]
    ++ (with pkgs; [
      deadnix
      mypy
      ruff
      shellcheck
      python3Packages.hypothesis
      python3Packages.pandas-stubs
      python3Packages.pytest
      python3Packages.pytest-timeout
      python3Packages.pytest-xdist
      python3Packages.types-pyyaml
    ]);
}
