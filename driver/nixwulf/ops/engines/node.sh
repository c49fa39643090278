#!/bin/sh
# What 'nixwulf engines' does on a node, in the ssh user's own folder; root is not needed.
#
#   state NAME PROGRAM...   what the node is, what is installed, and which programs are its own
#   build NAME BUILD SHA256 FOLDER SCRIPT OPTION...
#                           what SCRIPT makes of FOLDER in the archive NAME.source
#   send NAME | receive NAME    an installation, as a tar archive
#   check NAME              compares the files with their sums, and prints these
#   remove NAME
set -eu
LC_ALL=C
export LC_ALL
action=$1 name=$2
shift 2
root=${XDG_CACHE_HOME:-$HOME/.cache}/nixwulf/engines
new=$root/.$name

fail() {
  echo "error: $1" >&2
  exit 1
}

# Copies are for machines alike in this: a build uses every instruction of its CPU.
kind() {
  uname -sm
  getconf GNU_LIBC_VERSION || true
  grep -E '^(ID|VERSION_ID)=' /etc/os-release || true
  grep -E '^(model name|flags|Features|CPU implementer|CPU part|isa)' /proc/cpuinfo | sort -u
  cat /sys/class/drm/card*/device/vendor /sys/class/drm/card*/device/device | sort || true
  [ ! -e /dev/nvidia0 ] || echo nvidia
}

# What is there until 'finish' is of no use to anybody, however this ends.
begin() {
  mkdir -p "$root"
  exec 9>"$root/lock"
  flock -n 9 || fail "another 'nixwulf engines install' is at work there; wait for it"
  trap 'rm -rf "$new"' EXIT
  trap 'exit 130' HUP INT TERM
  rm -rf "$new"
  mkdir -p "$new/done"
}

finish() {
  rm -rf "${root:?}/$name"
  mv "$new/done" "$root/$name"
}

sums() {
  find . -type f ! -name sums | sort | xargs sha256sum
}

case "$action" in
state)
  mkdir -p "$root"
  echo "root $root"
  echo "system $(uname -s)"
  echo "kind $(kind 2>/dev/null | cksum | tr ' ' -)"
  echo "free_kib $(df -Pk "$root" | awk 'NR == 2 { print $4 }')"
  [ ! -e "$root/$name/build" ] || echo "build $(cat "$root/$name/build")"
  for program; do
    place=$(command -v "$program") && echo "own $place"
  done
  exit 0
  ;;
build)
  build=$1 sha256=$2 folder=$3 script=$4
  shift 4
  begin
  archive=$root/$name.source
  echo "$sha256  $archive" | sha256sum -c --quiet - || fail "the source is not what was sent"
  tar -xzf "$archive" -C "$new" "$folder"
  rm "$archive"
  sh -c "$script" sh build "$new/$folder" "$new/tree" "$new/done/bin" "$@"
  cd "$new/done"
  echo "$build" >build
  # shellcheck disable=SC2094
  sums >sums
  finish
  ;;
send)
  tar -cf - -C "$root/$name" .
  ;;
receive)
  begin
  tar -xf - -C "$new/done"
  cd "$new/done"
  sums | cmp -s - sums || fail "what arrived is not what was sent"
  finish
  ;;
check)
  cd "$root/$name"
  sums | cmp -s - sums || fail "its files are not what was installed"
  cat sums
  ;;
remove)
  [ ! -e "$root/$name" ] || echo removed
  rm -rf "${root:?}/$name" "$new" "$root/$name.source"
  ;;
esac
