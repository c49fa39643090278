# Minisforum MS-S1 Max. nixos-hardware does not have it: these are the parts of its modules for machines of this kind.
{ inputs }:
{ lib, ... }:
let
  facts = fromTOML (
    builtins.readFile ../../../driver/nixwulf/data/platforms/minisforum-ms-s1-max.toml
  );
in
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
