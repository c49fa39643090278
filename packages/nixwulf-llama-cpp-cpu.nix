# nixpkgs' llama.cpp as a cluster needs it: with the RPC backend, and RDMA as its transport. All variants are one
# version, because RPC servers and clients have to be
# (https://github.com/lhl/strix-halo-testing/blob/main/rpc-test/README.md). nixpkgs' own `llama-cpp*` stay as they are.
{
  lib,
  stdenv,
  llama-cpp,
  rdma-core,
  # In the order of preference; the CPU's is always there.
  backends ? [ ],
  cmakeFlags ? [ ],
  supportedSystems ? lib.platforms.linux,
}:
let
  name = if backends == [ ] then "cpu" else lib.concatStringsSep "-" backends;
  has = backend: lib.elem backend backends;

  # A platform's nixpkgs may have cudaSupport or rocmSupport on; a variant has its own backends whatever it says.
  support = {
    # OpenBLAS would compute prompts on another path than in the build that the driver makes for itself.
    blasSupport = false;
    cudaSupport = has "cuda";
    metalSupport = has "metal";
    rocmSupport = has "rocm";
    vulkanSupport = has "vulkan";
    rpcSupport = true;
    # Strix Halo's. Each GPU target compiles every kernel once more, and nixpkgs has 16. ROCm's own libraries stay as
    # nixpkgs has them, because only those can be in its binary cache.
    rocmGpuTargets = [ "gfx1151" ];
  };
in
(llama-cpp.override support).overrideAttrs (old: {
  name = "llama-cpp-${name}-${old.version}";

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

  passthru = old.passthru // {
    backends = if backends == [ ] then [ "cpu" ] else backends;
  };

  meta = old.meta // {
    description = "${old.meta.description}, ${name} and RPC";
    platforms = supportedSystems;
  };
})
