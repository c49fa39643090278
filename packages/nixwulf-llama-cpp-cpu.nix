# nixpkgs' llama.cpp as a cluster needs it: with the RPC backend, and RDMA as its transport. All variants are one
# version, because RPC servers and clients have to be
# (https://github.com/lhl/strix-halo-testing/blob/main/rpc-test/README.md). nixpkgs' own `llama-cpp*` stay as they are.
{
  lib,
  stdenv,
  llama-cpp,
  rdma-core,
  backend ? "cpu",
  # More arguments of nixpkgs' llama-cpp.
  settings ? { },
  cmakeFlags ? [ ],
  supportedSystems ? lib.platforms.linux,
}:
let
  # A platform's nixpkgs may have cudaSupport or rocmSupport on; a variant has one backend whatever it says.
  oneBackend = {
    # OpenBLAS would compute prompts on another path than in the build that the driver makes for itself.
    blasSupport = false;
    cudaSupport = backend == "cuda";
    metalSupport = backend == "metal";
    rocmSupport = backend == "rocm";
    vulkanSupport = backend == "vulkan";
    rpcSupport = true;
  };
in
(llama-cpp.override (oneBackend // settings)).overrideAttrs (old: {
  name = "llama-cpp-${backend}-${old.version}";

  # RPC over RoCE or InfiniBand: Linux only in this version. Client and server agree on it when both have it, else
  # they speak TCP (https://github.com/ggml-org/llama.cpp/pull/20590). It finds the providers of this rdma-core and no
  # others: override it for USB4.
  buildInputs = old.buildInputs ++ lib.optional stdenv.hostPlatform.isLinux rdma-core;
  cmakeFlags =
    old.cmakeFlags
    ++ lib.optional stdenv.hostPlatform.isLinux (lib.cmakeBool "GGML_RPC_RDMA" true)
    ++ cmakeFlags;

  # By b9824 upstream's name of the server was ggml-rpc-server (https://github.com/gentoo/guru/pull/503), and its
  # install target has it. nixpkgs copies a file of the old name, which is not there any more
  # (https://github.com/NixOS/nixpkgs/pull/553057).
  postInstall =
    lib.removeSuffix "cp bin/rpc-server $out/bin/llama-rpc-server" old.postInstall
    + "ln -sf ggml-rpc-server $out/bin/llama-rpc-server";

  meta = old.meta // {
    description = "${old.meta.description}, ${backend} and RPC";
    platforms = supportedSystems;
  };
})
