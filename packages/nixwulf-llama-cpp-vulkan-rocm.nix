# For Strix Halo: Vulkan and ROCm side by side. It is one build, so that a case chooses by `-dev Vulkan0` or `-dev ROCm0`,
# and RPC servers are the build of all clients whatever computes. llama.cpp's backends are libraries that are loaded when
# a program starts (nixpkgs sets GGML_BACKEND_DL), ROCm's by a compiler of its own, so that neither is in the other's way.
# Debian has both so: where /dev/kfd cannot be opened its ROCm lists no device, and Vulkan works.
#
# ROCm is loaded first, and is what a program takes that is given no device: name one
# (https://github.com/ggml-org/llama.cpp/issues/27579 is why it should be Vulkan's).
{ rdma-core, nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  inherit rdma-core;
  backends = [
    "vulkan"
    "rocm"
  ];
  supportedSystems = [ "x86_64-linux" ];
}
