# For DGX Spark (GB10 is compute capability 12.1, and the only aarch64 GPU of this flake) and for NVIDIA cards in PCs.
{
  lib,
  stdenv,
  rdma-core,
  nixwulf-llama-cpp-cpu,
}:
nixwulf-llama-cpp-cpu.override {
  inherit rdma-core;
  backends = [ "cuda" ];
  cmakeFlags = lib.optional stdenv.hostPlatform.isAarch64 (
    lib.cmakeFeature "CMAKE_CUDA_ARCHITECTURES" "121"
  );
}
