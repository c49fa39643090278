# Framework Desktop.
{ inputs, facts }:
{ lib, ... }:
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
