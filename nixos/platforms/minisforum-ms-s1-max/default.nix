# Minisforum MS-S1 Max. nixos-hardware does not have it: these are the parts of its modules for machines of this kind.
{ inputs, facts }:
{ lib, ... }:
{
  imports = [
    ../generic-x86_64
  ]
  ++ map (part: "${inputs.nixos-hardware}/common/${part}") [
    "cpu/amd"
    "cpu/amd/pstate.nix"
    "gpu/amd"
    "pc/ssd"
  ];

  nixwulf.strix-halo = {
    enable = true;
    memoryGiB = lib.mkDefault facts.memory_gib.value;
  };
}
