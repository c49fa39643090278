#!/bin/sh
# How llama.cpp is built on a node: for its CPU, and for its GPU where there are the tools for it.
#
#   probe                   a line each: 'features' of a build here, the 'missing' tools, 'idle'
#                           where the GPU would be, and of each the command that would help
#   build SOURCE TREE BIN OPTION... -- TARGET...
set -eu
PATH=$PATH:/usr/local/cuda/bin:/opt/rocm/bin

have() { command -v "$1" >/dev/null; }

header() { [ -e "/usr/include/$1" ]; }

library() { [ -n "$(ls /usr/lib*/"lib$1.so" /usr/lib/*/"lib$1.so" 2>/dev/null)" ]; }

# ROCm is often there in part, and what CMake misses ends the whole build.
rocm() {
  place=$(hipconfig -R 2>/dev/null)/include
  [ -e "$place/hipblas/hipblas.h" ] && [ -e "$place/rocblas/rocblas.h" ]
}

features() {
  found=cpu
  if [ -e /dev/nvidia0 ] && have nvcc; then found="$found cuda"; fi
  if [ -e /dev/kfd ] && rocm; then found="$found rocm"; fi
  if ls /dev/dri/renderD* >/dev/null 2>&1 && have glslc && header vulkan/vulkan.h &&
    library vulkan && header spirv/unified1/spirv.h; then
    found="$found vulkan"
  fi
  if header infiniband/verbs.h && library ibverbs; then found="$found rdma"; fi
  echo "$found"
}

install_line() {
  # shellcheck source=/dev/null
  case " $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") " in
  *" debian "* | *" ubuntu "*) echo "sudo apt-get install $1" ;;
  *" fedora "* | *" rhel "*) echo "sudo dnf install $2" ;;
  *" nixos "*) echo "nixwulf deploy" ;;
  *) echo "your package manager ($1)" ;;
  esac
}

probe() {
  missing=
  for tool in cmake cc c++; do have "$tool" || missing="$missing $tool"; done
  have ninja || have make || missing="$missing make"
  if [ -n "$missing" ]; then
    echo "missing$missing"
    echo "tools $(install_line 'cmake g++ make' 'cmake gcc-c++ make')"
  fi
  built=$(features)
  echo "features $built"
  case "$built" in *cuda* | *rocm* | *vulkan*) return ;; esac
  if [ -e /dev/nvidia0 ]; then
    echo "idle the CUDA toolkit"
  elif [ -e /dev/kfd ] || ls /dev/dri/renderD* >/dev/null 2>&1; then
    echo "idle $(install_line 'glslc libvulkan-dev spirv-headers' \
      'glslc vulkan-headers vulkan-loader-devel spirv-headers-devel')"
  fi
}

# A compiler takes up to 1.5 GiB, more than a small board has for each of its cores.
compilers() {
  awk -v cores="$(getconf _NPROCESSORS_ONLN)" '/^MemAvailable:/ { most = int($2 / 1572864) }
    END { print most < 1 ? 1 : most < cores ? most : cores }' /proc/meminfo
}

build() {
  source=$1 tree=$2 bin=$3
  shift 3
  # What is to be built comes after the options.
  options=
  while [ "$1" != -- ]; do
    options="$options $1"
    shift
  done
  shift
  rdma=OFF
  for feature in $(features); do
    case "$feature" in
    cuda) options="$options -DGGML_CUDA=ON" ;;
    vulkan) options="$options -DGGML_VULKAN=ON" ;;
    rdma) rdma=ON ;;
    rocm)
      options="$options -DGGML_HIP=ON"
      HIPCXX=$(hipconfig -l)/clang HIP_PATH=$(hipconfig -R)
      export HIPCXX HIP_PATH
      ;;
    esac
  done
  if have ninja; then options="$options -G Ninja"; fi
  # shellcheck disable=SC2086
  cmake -S "$source" -B "$tree" $options "-DGGML_RPC_RDMA=$rdma"
  cmake --build "$tree" --parallel "$(compilers)" --target "$@"
  mkdir -p "$bin"
  for target; do cp "$tree/bin/$target" "$bin/"; done
}

action=$1
shift
"$action" "$@"
