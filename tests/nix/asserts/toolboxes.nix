{ lib, evaluate, ... }:
let
  config = evaluate [
    {
      nixwulf.cluster.sshKeys = [ "ssh-ed25519 AAAA" ];
      nixwulf.toolboxes = {
        names = [
          "vllm"
          "llama-vulkan-radv"
        ];
        allowUnpinned = true;
        folders = [ "/srv/with space" ];
      };
    }
  ];
  nvidia = evaluate [
    {
      services.xserver.videoDrivers = [ "nvidia" ];
      nixwulf.toolboxes.names = [ "vllm" ];
    }
  ];
  inherit (config.nixwulf.toolboxes) wrappers;
  timer = config.systemd.timers.toolbox-vllm-prefetch;
  prefetch = config.systemd.services.toolbox-vllm-prefetch;
  lacks = text: lib.filter (part: !lib.hasInfix part text);
in
{
  "a pinned toolbox is run by its digest and nothing else" = {
    expected = true;
    actual = lib.hasInfix "image=docker.io/kyuz0/vllm-therock-gfx1151@sha256:25fd294fde9f729d1e75f109022ab4496c78190c0a6dc0142440529f7af20e4d\n" wrappers.vllm.text;
  };
  "an unpinned one is run by its tag, where that is allowed" = {
    expected = true;
    actual = lib.hasInfix "image=docker.io/kyuz0/amd-strix-halo-toolboxes:vulkan-radv\n" wrappers.llama-vulkan-radv.text;
  };
  "it has the GPU, RDMA, the caller's groups, locked memory and the host's network" = {
    expected = [ ];
    actual = lacks wrappers.vllm.text [
      "/dev/dri /dev/kfd /dev/infiniband"
      "--group-add=keep-groups"
      "--ulimit=memlock=-1"
      "--security-opt=seccomp=unconfined"
      "--network=host"
      "--cgroups=disabled"
    ];
  };
  "an NVIDIA GPU is there by its CDI specification, which NixOS then writes" = {
    expected = {
      device = true;
      generator = true;
      without = false;
    };
    actual = {
      device = lib.hasInfix "--device=nvidia.com/gpu=all" wrappers.vllm.text;
      generator = nvidia.hardware.nvidia-container-toolkit.enable;
      without = config.hardware.nvidia-container-toolkit.enable;
    };
  };
  "it has the variables of a transport, and a folder with a space" = {
    expected = [ ];
    actual = lacks wrappers.vllm.text [
      "'NCCL_*'"
      "'GLOO_*'"
      "'VLLM_*'"
      "'/srv/with space'"
    ];
  };
  "a cache is of one image" = {
    expected = true;
    actual = lib.hasInfix "nixwulf/toolbox-vllm-25fd294fde9f:/root/.cache" wrappers.vllm.text;
  };
  "its program is on PATH" = {
    expected = [
      "toolbox-llama-vulkan-radv"
      "toolbox-vllm"
    ];
    actual = lib.sort lib.lessThan (
      lib.filter (lib.hasPrefix "toolbox-") (map lib.getName config.environment.systemPackages)
    );
  };
  "images are fetched after boot, by the benchmarks' user, until that works" = {
    expected = {
      User = "bench";
      wantedBy = [ ];
      timer = [ "timers.target" ];
      again = "10min";
      until = "!/run/toolbox-vllm/25fd294fde9f";
    };
    actual = {
      inherit (prefetch.serviceConfig) User;
      inherit (prefetch) wantedBy;
      timer = timer.wantedBy;
      again = timer.timerConfig.OnUnitInactiveSec;
      until = prefetch.unitConfig.ConditionPathExists;
    };
  };
  "a node that cannot fetch an image can be updated: the unit never waits for its restart" = {
    expected = false;
    actual = prefetch.serviceConfig ? Restart;
  };
  "the regressed build is there for whoever names it, and every digest is one" = {
    expected = [ ];
    actual = lib.filter (
      image:
      image.digest != null && builtins.match "sha256:[0-9a-f]{64}" image.digest == null
      || image.digest == null && image.tag == null
    ) (lib.attrValues (lib.importJSON config.nixwulf.toolboxes.lockFile).images);
  };
}
