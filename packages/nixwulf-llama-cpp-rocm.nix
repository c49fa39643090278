# For Strix Halo. Vulkan is the reference there: ROCm corrupts the output of some models
# (https://github.com/ggml-org/llama.cpp/issues/27579).
{ nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  backend = "rocm";
  # Each GPU target compiles every kernel once more, and nixpkgs has a dozen. ROCm's own libraries keep all of theirs:
  # those are in nixpkgs' binary cache.
  settings.rocmGpuTargets = [ "gfx1151" ];
  supportedSystems = [ "x86_64-linux" ];
}
