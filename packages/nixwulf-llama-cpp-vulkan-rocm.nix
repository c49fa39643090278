# For Strix Halo: Vulkan and ROCm side by side in one build, so that a case compares them by `-dev Vulkan0` and
# `-dev ROCm0`, and one RPC server is the same build as every client. nixpkgs builds llama.cpp's backends as libraries
# that are loaded at run time (GGML_BACKEND_DL), each with its own compiler, and Debian's packages of both are loaded by
# one llama.cpp too. Where /dev/kfd cannot be opened, ROCm lists no device and Vulkan works (seen with Debian's).
#
# What names no device gets ROCm's, which is loaded first, and an RPC server offers the one GPU twice. Name Vulkan0
# unless ROCm is meant: it corrupts the output of some models (https://github.com/ggml-org/llama.cpp/issues/27579).
{ rdma-core, nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  inherit rdma-core;
  backends = [
    "vulkan"
    "rocm"
  ];
  supportedSystems = [ "x86_64-linux" ];
}
