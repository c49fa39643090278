# Container images as programs: `toolbox-NAME COMMAND...` runs COMMAND in the image that the lock file pins.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  inherit (config.nixwulf.cluster) where;
  cfg = config.nixwulf.toolboxes;
  benchNode = config.nixwulf.bench-node;

  locked = cfg.lock.images;
  entryOf = name: locked.${name} or null;
  pinned = entry: entry.digest != null;
  usable = lib.filter (
    name: entryOf name != null && (pinned (entryOf name) || cfg.allowUnpinned)
  ) cfg.names;

  referenceOf =
    entry: if pinned entry then "${entry.image}@${entry.digest}" else "${entry.image}:${entry.tag}";

  # What engines and their libraries read; the rest of the host's environment, PATH above all, stays outside.
  environment = [
    "GGML_*"
    "GLOO_*"
    "HF_*"
    "HIP_*"
    "HSA_*"
    "LLAMA_*"
    "NCCL_*"
    "OMP_*"
    "PYTHONFAULTHANDLER"
    "RAY_*"
    "RCCL_*"
    "TORCH_*"
    "TRITON_*"
    "VLLM_*"
  ];

  versionOf = entry: if pinned entry then lib.substring 7 12 entry.digest else entry.tag;

  # In /run: that the image was fetched since the boot.
  fetched = name: "toolbox-${name}/${versionOf (entryOf name)}";

  wrapper =
    name:
    let
      entry = entryOf name;
      command = "toolbox-${name}";
      # A compile cache of another version crashes vLLM, so that each image has its own.
      version = versionOf entry;
    in
    pkgs.writeShellApplication {
      name = command;
      runtimeInputs = [
        pkgs.coreutils
        pkgs.gnugrep
        config.virtualisation.podman.package
      ];
      text = ''
        # ${command} COMMAND...: COMMAND in the image; ${command} --pull: get the image and stop.
        image=${lib.escapeShellArg (referenceOf entry)}

        if (($# == 0)); then
          echo "${command}: no command; give one, such as '${command} bash', or --pull to get the image." >&2
          exit 2
        fi

        # Rootless podman needs both, and a system service has neither.
        if ((EUID != 0)); then
          export XDG_RUNTIME_DIR=''${XDG_RUNTIME_DIR:-/run/user/$EUID}
          PATH=$PATH:/run/wrappers/bin
        fi

        if [[ $1 == --pull ]]; then
          if podman image exists "$image"; then
            exit 0
          fi
          exec podman pull --quiet "$image"
        fi

        options=(
          --rm --init --interactive --entrypoint=
          # The container's processes stay in the caller's cgroup: who stops that unit stops them.
          --cgroups=disabled
          # Engines bind the fabrics' addresses, and NCCL's ranks meet in shared memory.
          --network=host --ipc=host
          # ROCm's allocations are system calls that the default profile refuses.
          --security-opt=seccomp=unconfined
          # A named group aborts rootless podman when the image lacks it; these are the caller's render, video and rdma.
          --group-add=keep-groups
        )
        if [[ -t 0 && -t 1 ]]; then
          options+=(--tty)
        fi
        for device in /dev/dri /dev/kfd /dev/infiniband; do
          if [[ -e $device ]]; then
            options+=("--device=$device")
          fi
        done
        # NVIDIA's devices need the host's libraries, which the specification of CDI names.
        if [[ -e /dev/nvidiactl ]]; then
          if ! grep -qs nvidia.com/gpu /etc/cdi/* /run/cdi/*; then
            echo "${command}: there is no CDI specification of the NVIDIA GPU; run 'systemctl restart nvidia-container-toolkit-cdi-generator' as root, and look at its journal." >&2
            exit 1
          fi
          options+=(--device=nvidia.com/gpu=all)
        fi

        # RDMA pins its buffers; a low limit on one node makes the other one report a network fault.
        limit=$(ulimit -H -l)
        if ((EUID == 0)) || [[ $limit == unlimited ]]; then
          options+=(--ulimit=memlock=-1)
        elif [[ -e /dev/infiniband ]]; then
          echo "${command}: only $limit KiB of memory may be locked here and RDMA needs any amount; set the user's memlock limit to unlimited and log in again." >&2
          exit 1
        fi

        cache=''${XDG_CACHE_HOME:-''${HOME:-/root}/.cache}
        mkdir -p "$cache/nixwulf/${command}-${version}" "$cache/huggingface/hub"
        options+=(
          "--volume=$cache/nixwulf/${command}-${version}:/root/.cache"
          # The folder above it has the user's token.
          "--volume=$cache/huggingface/hub:/root/.cache/huggingface/hub"
          # Its default is not in .cache; recompiling takes vLLM 25 minutes.
          --env=TRITON_CACHE_DIR=/root/.cache/triton
        )
        for folder in ${lib.escapeShellArgs (lib.unique (map toString cfg.folders))}; do
          if [[ -d $folder ]]; then
            options+=("--volume=$folder:$folder:ro")
          fi
        done
        for variable in ${lib.escapeShellArgs environment}; do
          options+=("--env=$variable")
        done

        exec podman run "''${options[@]}" "$image" "$@"
      '';
    };
in
{
  imports = [ ./bench-node.nix ];

  options.nixwulf.toolboxes = {
    names = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "llama-vulkan-radv"
        "vllm"
      ];
      description = "Toolboxes of the lock file to have; each becomes the program `toolbox-NAME`.";
    };
    # What a test computes: a file that is written while the flake is evaluated cannot be read where nothing is written,
    # as in 'nix flake check --no-build'.
    lock = mkOption {
      type = types.attrs;
      default = lib.importJSON cfg.lockFile;
      internal = true;
      description = "What the lock file holds.";
    };
    lockFile = mkOption {
      type = types.path;
      default = ../driver/nixwulf/data/toolboxes.lock.json;
      description = ''
        Images, tags and digests. `nix run .#refresh-toolboxes` pins the tags to what they are today. Tags are rebuilt on
        every change of llama.cpp and old ones are deleted; one night took prefill from 250 to 75 tok/s under the same
        tag (https://github.com/kyuz0/amd-strix-halo-toolboxes/issues/58).
      '';
    };
    allowUnpinned = mkOption {
      type = types.bool;
      default = false;
      description = "Whether a tag without a digest will do. Nobody can then repeat a measurement.";
    };
    user = mkOption {
      type = types.str;
      default = if benchNode.enable then benchNode.user else "root";
      defaultText = lib.literalMD "`nixwulf.bench-node.user`, else root";
      description = "Whose images are fetched after boot, and who runs services in toolboxes: rootless podman has a store a user.";
    };
    prefetch = mkOption {
      type = types.bool;
      default = true;
      description = "Whether images are fetched a minute after boot, so that no run waits for gigabytes in silence.";
    };
    folders = mkOption {
      type = types.listOf types.path;
      default = [ config.nixwulf.cluster.models ];
      defaultText = lib.literalMD "the cluster's folder of models";
      description = ''
        Folders of the host that a toolbox may read under the same path, those of them that exist. An image is somebody
        else's program: it has a `/tmp` of its own, and no home.
      '';
    };
    wrappers = mkOption {
      type = types.attrsOf types.package;
      internal = true;
      readOnly = true;
      default = lib.genAttrs usable wrapper;
      description = "The program of each toolbox.";
    };
  };

  config = lib.mkIf (cfg.names != [ ]) {
    assertions = lib.concatMap (
      name:
      let
        entry = entryOf name;
        file = baseNameOf cfg.lockFile;
      in
      [
        {
          assertion = entry != null;
          message = "${where}: the toolbox '${name}' is not in ${file}; choose from ${lib.concatStringsSep ", " (lib.attrNames locked)}.";
        }
        {
          assertion = entry == null || pinned entry || cfg.allowUnpinned;
          message = "${where}: the toolbox '${name}' has no digest in ${file} and its tag is rebuilt without notice; run 'nix run .#refresh-toolboxes'.";
        }
      ]
    ) cfg.names;

    virtualisation.podman.enable = true;
    hardware.nvidia-container-toolkit.enable = lib.mkIf (lib.elem "nvidia" config.services.xserver.videoDrivers) (
      lib.mkDefault true
    );
    environment.systemPackages = lib.attrValues cfg.wrappers;

    systemd = lib.mkIf cfg.prefetch {
      services = lib.mapAttrs' (
        name: program:
        lib.nameValuePair "toolbox-${name}-prefetch" {
          description = "Fetch the image of the toolbox '${name}'";
          wants = [ "network-online.target" ];
          after = [ "network-online.target" ];
          unitConfig.ConditionPathExists = "!/run/${fetched name}";
          # Its timer tries again. A unit that waits for its own restart counts as failed in whatever switch comes next,
          # and a cluster without the Internet could never be updated.
          script = ''
            if ${lib.getExe program} --pull; then
              touch "/run/${fetched name}"
            else
              echo "The image of the toolbox '${name}' was not fetched; trying again in ten minutes."
            fi
          '';
          serviceConfig = {
            Type = "oneshot";
            User = cfg.user;
            LimitCORE = 0;
            RuntimeDirectory = dirOf (fetched name);
            RuntimeDirectoryPreserve = true;
          };
        }
      ) cfg.wrappers;
      # multi-user.target would wait for a oneshot that it wants; nothing waits for a timer's.
      timers = lib.mapAttrs' (
        name: _:
        lib.nameValuePair "toolbox-${name}-prefetch" {
          wantedBy = [ "timers.target" ];
          timerConfig = {
            OnActiveSec = "1min";
            OnUnitInactiveSec = "10min";
          };
        }
      ) cfg.wrappers;
    };
  };
}
