# https://github.com/b4rtaz/distributed-llama: tensor parallelism over plain Ethernet, made for boards without a GPU.
{
  lib,
  stdenv,
  fetchFromGitHub,
  shaderc,
  vulkan-headers,
  vulkan-loader,
  vulkanSupport ? false,
  # Instructions are chosen at compile time, and upstream's -march=native would be those of the build machine. Every
  # platform of this flake has these: the x86 ones AVX2 and FMA, the CM5 (Cortex-A76) and GB10 dot products and fp16.
  instructions ? if stdenv.hostPlatform.isx86_64 then "x86-64-v3" else "armv8.2-a+dotprod+fp16",
}:
stdenv.mkDerivation {
  pname = "distributed-llama" + lib.optionalString vulkanSupport "-vulkan";
  version = "0.16.4-unstable-2026-01-18";

  src = fetchFromGitHub {
    owner = "b4rtaz";
    repo = "distributed-llama";
    rev = "8d624a7b1f9acc0855d71a32519b22fe51e0bd86";
    hash = "sha256-nASsYZ97WRqg3VW/QaQ6W705+afgOY7kv8jVzyiE4qk=";
  };

  # After a prompt both go on from what lies behind its last token: 0, or whatever was in memory, which ends dllama-api
  # on several nodes (docs/engines.md). The shaders are looked for in the current folder.
  postPatch = ''
    substituteInPlace src/dllama.cpp \
      --replace-fail 'token = inputTokens[pos + 1];' 'token = inputTokens[pos];'
    substituteInPlace src/dllama-api.cpp \
      --replace-fail 'token = promptTokens[i + 1];' 'token = promptTokens[i];'
  ''
  + lib.optionalString vulkanSupport ''
    substituteInPlace src/nn/nn-vulkan.cpp \
      --replace-fail '"./src/nn/vulkan/"' '"${placeholder "out"}/share/distributed-llama/"'
  '';

  nativeBuildInputs = lib.optional vulkanSupport shaderc;
  buildInputs = lib.optionals vulkanSupport [
    vulkan-headers
    vulkan-loader
  ];

  # -Werror stops at what the next compiler newly warns of.
  env.NIX_CFLAGS_COMPILE = "-march=${instructions} -Wno-error";

  makeFlags = [
    "CXX=${stdenv.cc.targetPrefix}c++"
    # All it does is to leave out -march=native.
    "TERMUX_VERSION=nix"
  ]
  ++ lib.optional vulkanSupport "DLLAMA_VULKAN=1";
  buildFlags = [
    "dllama"
    "dllama-api"
  ];
  enableParallelBuilding = true;

  passthru = { inherit vulkanSupport; };

  installPhase = ''
    runHook preInstall
    install -D -t $out/bin dllama dllama-api
  ''
  + lib.optionalString vulkanSupport ''
    install -D -m 644 -t $out/share/distributed-llama src/nn/vulkan/*.spv
  ''
  + ''
    runHook postInstall
  '';

  meta = {
    description = "LLM inference on a cluster of small machines, tensors split over Ethernet";
    homepage = "https://github.com/b4rtaz/distributed-llama";
    license = lib.licenses.mit;
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
    mainProgram = "dllama";
  };
}
