# For DGX Spark (GB10 is compute capability 12.1, and the only aarch64 GPU of this flake) and for NVIDIA cards in PCs.
{
  lib,
  stdenv,
  nixwulf-llama-cpp-cpu,
}:
nixwulf-llama-cpp-cpu.override {
  backend = "cuda";
  cmakeFlags = lib.optional stdenv.hostPlatform.isAarch64 (
    lib.cmakeFeature "CMAKE_CUDA_ARCHITECTURES" "121"
  );
}
