# Framework Desktop.
{ inputs }:
{ lib, ... }:
let
  facts = fromTOML (builtins.readFile ../../../driver/nixwulf/data/platforms/framework-desktop.toml);
in
{
  imports = [
    ../generic-x86_64
    "${inputs.nixos-hardware}/framework/desktop/amd-ai-max-300-series"
  ];

  nixwulf.strix-halo = {
    enable = true;
    memoryGiB = lib.mkDefault facts.memory_gib.value;
  };
}
