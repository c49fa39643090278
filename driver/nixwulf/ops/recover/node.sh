#!/bin/sh
# What 'nixwulf nodes' asks of a node.
#
#   state            which boot this is, since when, and what drivers own here
#   reset MODULE...  resets the GPU, and loads the modules of links anew
#   reboot | poweroff
#
# A line that begins with 'did' names what was done.
set -u
LC_ALL=C
PATH=/run/current-system/sw/bin:$PATH:/usr/sbin:/sbin
export LC_ALL PATH

root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# Down at once: a hung GPU can keep an orderly shutdown waiting for minutes, and a job in the
# background lets ssh answer first.
down() {
  root true || exit 1
  root sync
  (
    sleep 1
    root systemctl "$1" || root shutdown "$2" now
  ) >/dev/null 2>&1 </dev/null &
  echo "did $1"
}

action=$1
shift
case "$action" in
state)
  echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null || sysctl -n kern.boottime)"
  [ ! -r /proc/uptime ] || echo "uptime $(cut -d. -f1 /proc/uptime)"
  owned | sed 's/^/owned /' # of nodes/process.py
  ;;
reset)
  # Reading the file resets the GPU, whoever uses it: https://github.com/RadeonOpenCompute/ROCm/issues/616
  for file in $(root find /sys/kernel/debug/dri -name amdgpu_gpu_recover 2>/dev/null); do
    root cat "$file" >/dev/null 2>&1 && echo "did reset the GPU"
    break
  done
  if command -v nvidia-smi >/dev/null; then
    root nvidia-smi --gpu-reset >/dev/null 2>&1 && echo "did reset the GPU"
  fi
  for module; do
    [ -d "/sys/module/$module" ] || continue
    root modprobe -r "$module" && root modprobe "$module" && echo "did load $module anew"
  done
  exit 0
  ;;
reboot) down reboot -r ;;
poweroff) down poweroff -h ;;
*)
  echo "'$action' is not state, reset, reboot or poweroff." >&2
  exit 2
  ;;
esac
