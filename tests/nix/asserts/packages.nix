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
  "each llama.cpp has the backends of its name besides the CPU" = {
    expected = {
      x86_64-linux = {
        nixwulf-llama-cpp-cpu = [ ];
        nixwulf-llama-cpp-cuda = [ "CUDA" ];
        nixwulf-llama-cpp-rocm = [ "HIP" ];
        nixwulf-llama-cpp-vulkan = [ "VULKAN" ];
        nixwulf-llama-cpp-vulkan-rocm = [
          "HIP"
          "VULKAN"
        ];
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
  "a llama.cpp lists the backends of its name" = {
    expected = [ ];
    actual = lib.concatMap (
      packages:
      lib.attrNames (
        lib.filterAttrs (
          name: package: name != "nixwulf-llama-cpp-${lib.concatStringsSep "-" package.backends}"
        ) packages
      )
    ) (lib.attrValues llamaCpp);
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
  "on Linux each can be linked with another rdma-core" = {
    expected = [ ];
    actual =
      lib.concatMap
        (
          packages:
          lib.attrNames (
            lib.filterAttrs (
              _: package: !lib.elem x86.hello (package.override { rdma-core = x86.hello; }).buildInputs
            ) packages
          )
        )
        [
          llamaCpp.x86_64-linux
          llamaCpp.aarch64-linux
        ];
  };
  "ROCm is compiled for Strix Halo" = {
    expected = [
      "gfx1151"
      "gfx1151"
    ];
    actual = map (option "CMAKE_HIP_ARCHITECTURES") [
      x86.nixwulf-llama-cpp-rocm
      x86.nixwulf-llama-cpp-vulkan-rocm
    ];
  };
  # Each is a library that is loaded at run time: they are linked with nothing of one another.
  "two backends side by side are loaded, not linked" = {
    expected = "TRUE";
    actual = option "GGML_BACKEND_DL" x86.nixwulf-llama-cpp-vulkan-rocm;
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
