#!/bin/sh
# $1 is the image, $2 the model or nothing, the rest the programs to look for inside. What the node
# has comes first, a word a line; the places inside follow the two dashes.

image=$1 model=$2; shift 2
command -v podman >/dev/null || { echo podman; exit 0; }
podman image exists "$image" 2>/dev/null || { echo image; exit 0; }
for device in /dev/dri /dev/kfd /dev/infiniband; do [ ! -e "$device" ] || echo "$device"; done
# NVIDIA's devices need the host's libraries, which the specification of CDI names.
if [ -e /dev/nvidiactl ]; then
  grep -qs nvidia.com/gpu /etc/cdi/* /run/cdi/* || { echo cdi; exit 0; }
  echo nvidia.com/gpu=all
fi
# shellcheck disable=SC3045
if (ulimit -l unlimited) 2>/dev/null; then echo memlock; fi
if [ -d "$model" ]; then echo "model:$model"
elif [ -e "$model" ]; then echo "model:$(dirname "$model")"; fi
caches=${XDG_CACHE_HOME:-$HOME/.cache}
# A compile cache of another version crashes vLLM, so that each image has its own.
own=$caches/nixwulf/toolboxes/${image##*:}
hub=huggingface/hub
mkdir -p "$own" "$caches/$hub"
echo "cache:$own:/root/.cache"
# The folder above it has the user's token. Only of a name on Hugging Face is anything fetched.
echo "cache:$caches/$hub:/root/.cache/$hub${model:+:ro}"
echo "--"
podman run --rm --entrypoint= --network=none --cgroups=disabled --security-opt=seccomp=unconfined   --env=LC_ALL=C "$image" sh -c 'for program; do command -v "$program"; done; exit 0' sh "$@"
