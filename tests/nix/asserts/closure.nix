# What is copied to every node at every installation.
{ lib, outputs, ... }:
let
  node = outputs.nixosConfigurations.mini-3-mini1.config;
in
{
  "nixpkgs' source is not part of a node" = {
    expected = {
      registry = false;
      path = false;
    };
    actual = {
      registry = node.nix.registry ? nixpkgs;
      path = lib.elem "nixpkgs=flake:nixpkgs" node.nix.nixPath;
    };
  };
}
