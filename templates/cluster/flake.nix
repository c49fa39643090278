{
  description = "My cluster";

  inputs.nixwulf.url = "github:nixwulf/nixwulf";

  # cluster.toml says what there is; NixOS modules of your own can be added to `modules`.
  outputs =
    { nixwulf, ... }:
    nixwulf.lib.mkCluster {
      file = ./cluster.toml;
      modules = [ ];
    };
}
