# Refuses kernels, firmware and builds of llama.cpp that are known to break the node's GPU.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types versionAtLeast;
  cfg = config.nixwulf.known-bad;

  # One table for Nix and for the driver's gates.
  table = fromTOML (builtins.readFile ../driver/nixwulf/data/known_bad.toml);

  concerns =
    entry:
    entry.gpu == cfg.gpu
    # The MES is known to a running machine only.
    && !entry ? mes
    && (
      !entry ? kernel_from
      ||
        versionAtLeast cfg.kernelVersion entry.kernel_from
        && lib.versionOlder cfg.kernelVersion entry.kernel_before
    )
    && (
      !entry ? firmware_from
      ||
        versionAtLeast cfg.firmwareVersion entry.firmware_from
        && versionAtLeast entry.firmware_to cfg.firmwareVersion
    )
    && (
      !entry ? llama_cpp_from
      ||
        cfg.llamaCppRocm != null
        && versionAtLeast cfg.llamaCppRocm (toString entry.llama_cpp_from)
        && lib.versionOlder cfg.llamaCppRocm (toString entry.llama_cpp_before)
    );

  benchNode = config.nixwulf.bench-node or { enable = false; };
  llamaCpp = if benchNode.enable then benchNode.llamaCpp else null;

  what =
    entry:
    lib.concatStringsSep " with " (
      lib.optional (entry ? kernel_from) "kernel ${cfg.kernelVersion}"
      ++ lib.optional (entry ? firmware_from) "linux-firmware ${cfg.firmwareVersion}"
      ++ lib.optional (entry ? llama_cpp_from) "llama.cpp ${cfg.llamaCppRocm} with ROCm"
    );
in
{
  imports = [ ./cluster.nix ];

  options.nixwulf.known-bad = {
    gpu = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "gfx1151";
      description = ''
        The node's GPU, as LLVM names it. Only what was seen on that GPU is refused, and nothing where it is null;
        platforms with a known GPU set it.
      '';
    };
    kernelVersion = mkOption {
      type = types.str;
      default = config.boot.kernelPackages.kernel.version;
      defaultText = lib.literalExpression "config.boot.kernelPackages.kernel.version";
      description = "The version of the kernel, by which kernels are refused.";
    };
    firmwareVersion = mkOption {
      type = types.str;
      default = pkgs.linux-firmware.version;
      defaultText = lib.literalExpression "pkgs.linux-firmware.version";
      description = ''
        The release of linux-firmware, by which firmware is refused. Set it where `hardware.firmware` takes the GPU's
        firmware from somewhere else.
      '';
    };
    llamaCppRocm = mkOption {
      type = types.nullOr types.str;
      default =
        if llamaCpp != null && lib.elem "rocm" (llamaCpp.backends or [ ]) then
          lib.getVersion llamaCpp
        else
          null;
      defaultText = lib.literalMD "the build of `nixwulf.bench-node.llamaCpp` where it has ROCm";
      description = ''
        The build of llama.cpp that computes by ROCm, by which builds are refused. Set it to null where the package has
        the mend as a patch.
      '';
    };
    allow = mkOption {
      type = types.listOf (types.enum (lib.attrNames table));
      default = [ ];
      example = [ "llama_cpp-b10040-rocm" ];
      description = ''
        Entries of `driver/nixwulf/data/known_bad.toml` to build a node with nevertheless, for example to measure what
        they do.
      '';
    };
  };

  # A running machine does not tell the release otherwise; the driver's gate reads it of the system that booted.
  config.environment.etc."nixwulf/linux-firmware".text = cfg.firmwareVersion;

  config.assertions = lib.mapAttrsToList (name: entry: {
    assertion = !concerns entry;
    message =
      "${config.nixwulf.cluster.where}: ${what entry} is known to be bad on ${entry.gpu}: ${entry.reason} "
      + "(${entry.source}); ${entry.fix}, or set nixwulf.known-bad.allow = [ \"${name}\" ].";
  }) (removeAttrs table cfg.allow);
}
