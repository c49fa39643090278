# For Strix Halo. Vulkan is the reference there: ROCm corrupts the output of some models
# (https://github.com/ggml-org/llama.cpp/issues/27579).
{ nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  backend = "rocm";
  # Each GPU target compiles every kernel once more, and nixpkgs has 16. ROCm's own libraries stay as nixpkgs has them,
  # because only those can be in its binary cache.
  settings.rocmGpuTargets = [ "gfx1151" ];
  supportedSystems = [ "x86_64-linux" ];
}
