# What the variants of nixpkgs' packages really are, as far as their derivations tell.
{ lib, nixwulf, ... }:
let
  inherit (nixwulf) pkgs;
  x86 = pkgs.x86_64-linux;
  ofSystem = lib.mapAttrs (
    _: pkgs:
    lib.filterAttrs (_: lib.meta.availableOn pkgs.stdenv.hostPlatform) (
      lib.getAttrs (lib.attrNames (nixwulf.overlay { } x86)) pkgs
    )
  ) pkgs;

  backends = [
    "CUDA"
    "HIP"
    "METAL"
    "VULKAN"
  ];
  # The last value of an option counts.
  option =
    name: package:
    lib.last (
      [ null ]
      ++ lib.concatMap (
        flag:
        let
          found = builtins.match "-D${name}:[A-Z]+=(.*)" (toString flag);
        in
        lib.optionals (found != null) found
      ) package.cmakeFlags
    );
  backendsOf = package: lib.filter (name: option "GGML_${name}" package == "TRUE") backends;
  llamaCpp = lib.mapAttrs (
    _: lib.filterAttrs (name: _: lib.hasPrefix "nixwulf-llama-cpp-" name)
  ) ofSystem;
  allLlamaCpp = lib.concatMap lib.attrValues (lib.attrValues llamaCpp);

  blasOf = hpl: (lib.findFirst (input: input ? implementation) null hpl.buildInputs).implementation;
in
{
  "every source has a hash" = {
    expected = [ ];
    actual = lib.concatMap (
      packages:
      lib.attrNames (
        lib.filterAttrs (
          _: package:
          package ? src.outputHash
          && lib.elem package.src.outputHash [
            ""
            lib.fakeHash
            lib.fakeSha256
          ]
        ) packages
      )
    ) (lib.attrValues ofSystem);
  };
  "each llama.cpp has one backend besides the CPU" = {
    expected = {
      x86_64-linux = {
        nixwulf-llama-cpp-cpu = [ ];
        nixwulf-llama-cpp-cuda = [ "CUDA" ];
        nixwulf-llama-cpp-rocm = [ "HIP" ];
        nixwulf-llama-cpp-vulkan = [ "VULKAN" ];
      };
      aarch64-linux = {
        nixwulf-llama-cpp-cpu = [ ];
        nixwulf-llama-cpp-cuda = [ "CUDA" ];
        nixwulf-llama-cpp-vulkan = [ "VULKAN" ];
      };
      aarch64-darwin.nixwulf-llama-cpp-metal = [ "METAL" ];
    };
    actual = lib.mapAttrs (_: lib.mapAttrs (_: backendsOf)) llamaCpp;
  };
  "all llama.cpps have RPC and are one version" = {
    expected = [ "${x86.llama-cpp.version} TRUE" ];
    actual = lib.unique (map (package: "${package.version} ${option "GGML_RPC" package}") allLlamaCpp);
  };
  "no llama.cpp installs the RPC server under the name that upstream gave up" = {
    expected = false;
    actual = lib.any (package: lib.hasInfix "bin/rpc-server" package.postInstall) allLlamaCpp;
  };
  "on Linux RPC can cross RDMA" = {
    expected = [ "TRUE" ];
    actual = lib.unique (
      map (option "GGML_RPC_RDMA") (
        lib.attrValues llamaCpp.x86_64-linux ++ lib.attrValues llamaCpp.aarch64-linux
      )
    );
  };
  "ROCm is compiled for Strix Halo" = {
    expected = "gfx1151";
    actual = option "CMAKE_HIP_ARCHITECTURES" x86.nixwulf-llama-cpp-rocm;
  };
  "CUDA on aarch64 is compiled for GB10" = {
    expected = "121";
    actual = option "CMAKE_CUDA_ARCHITECTURES" pkgs.aarch64-linux.nixwulf-llama-cpp-cuda;
  };
  "each HPL has the BLAS of its name" = {
    expected = {
      hpl-amd-blis = "amd-blis";
      hpl-blis = "blis";
      hpl-openblas = "openblas";
    };
    actual = lib.mapAttrs (_: blasOf) (lib.getAttrs [ "hpl-amd-blis" "hpl-blis" "hpl-openblas" ] x86);
  };
}
