#!/bin/sh
# Runs a command in a root like that of a Nix build: /bin/sh is the only program outside the tools, the loopback is the
# only network, HOME does not exist, and the user is an ordinary one. Started as root of new namespaces.
#
#   enter.sh ROOT TOOLS [READ-ONLY-PATH ...] -- COMMAND ...
set -eu
root=$1 tools=$2
shift 2
mount -t tmpfs tmpfs "$root"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then
    mkdir -p "$root$1"
  else
    mkdir -p "$root${1%/*}"
    touch "$root$1"
  fi
  mount --rbind "$1" "$root$1"
  # Not everywhere may an ordinary user of namespaces do this.
  mount -o remount,bind,ro "$root$1" 2>/dev/null || true
  shift
done
shift
mkdir -p "$root/bin" "$root/tools" "$root/build" "$root/proc" "$root/dev/shm" "$root/etc" "$root/tmp"
cp -L /bin/sh "$root/bin/sh"
mount --bind "$tools" "$root/tools"
mount -t proc proc "$root/proc"
for name in full null random tty urandom zero; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
chmod 1777 "$root/tmp" "$root/dev/shm" "$root/build"
echo 'nixbld:x:1000:100:Nix build user:/build:/noshell' >"$root/etc/passwd"
echo 'nixbld:!:100:' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
ip link set lo up
exec unshare --user --map-user=1000 --map-group=100 --root="$root" --wd=/build \
  /tools/bin/env -i HOME=/homeless-shelter PATH=/tools/bin TMPDIR=/build "$@"
