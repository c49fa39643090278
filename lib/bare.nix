# A derivation without the configuration that it was made of, as an output of the flake. `nix flake check` keeps every value
# of an output until it ends, and the configuration of one machine is 0.25 GB.
derivation:
let
  bare = {
    type = "derivation";
    inherit (derivation)
      name
      system
      drvPath
      outPath
      outputName
      ;
  };
in
builtins.deepSeq bare bare
