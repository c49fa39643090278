# What the DGX Spark's module would ask of nixpkgs, here because all nodes of the platform share one.
{ inputs }:
{
  overlays = [ (import (inputs.nixos-dgx-spark + "/overlays/linux-6.17.nix")) ];
  config = {
    # NVIDIA's driver and CUDA.
    allowUnfree = true;
    cudaSupport = true;
    # GB10 is 12.1; 12.0 is what most kernels are compiled for.
    cudaCapabilities = [
      "12.0"
      "12.1"
    ];
  };
}
