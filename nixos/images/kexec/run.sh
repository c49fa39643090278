#!/bin/sh
# Boots the installer beside this script by kexec, from any Linux and as root. nixos-anywhere unpacks the tarball, starts
# this as 'run', and takes the words 'machine will boot into nixos' for success.
#
# Kept across kexec, in a second archive behind the installer's initrd: host keys of ssh (a pinned key stays right), keys
# that may log in (nixos-anywhere's own was added a moment ago), addresses and routes (a fabric may have no DHCP).
set -eu
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin:/run/current-system/sw/bin
export LC_ALL PATH

here=$(cd "$(dirname "$0")" && pwd)
extra_flags=
if [ "${1:-}" = --kexec-extra-flags ]; then extra_flags=${2:-}; fi

fail() {
  echo "kexec: $1" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "'$(id -un)' is not root; let root in by ssh, or use sudo without a password."
for program in cpio ip awk; do
  command -v "$program" >/dev/null || fail "'$program' is not on this machine; install it."
done

umask 077
kept=$here/kept
rm -rf "$kept"
mkdir -p "$kept/root/etc/ssh" "$kept/root/root/.ssh" "$kept/network"

for key in /etc/ssh/ssh_host_*; do
  if [ -e "$key" ]; then cp -p "$key" "$kept/root/etc/ssh/"; fi
done

# Root may have been reached by sudo, and then the keys are another user's.
user=${SUDO_USER:-${DOAS_USER:-root}}
home=$(getent passwd "$user" | cut -d: -f6)
for file in /root/.ssh/authorized_keys "$home/.ssh/authorized_keys" \
  /etc/ssh/authorized_keys.d/root "/etc/ssh/authorized_keys.d/$user"; do
  if [ -r "$file" ]; then
    cat "$file"
    echo
  fi
done | awk '!seen[$0]++' >"$kept/root/root/.ssh/authorized_keys"

sh "$here/keep-network" "$kept/network"

# An archive that is not compressed has to begin at a multiple of four bytes.
size=$(($(wc -c <"$here/initrd")))
head -c $(((4 - size % 4) % 4)) /dev/zero >>"$here/initrd"
(cd "$here" && find kept | cpio --quiet -o -H newc) >>"$here/initrd"

# Whoever watches this machine by its serial port sees the installer there too.
consoles=$(tr ' ' '\n' </proc/cmdline | awk '/^console=/ { printf " %s", $0 }')

# shellcheck disable=SC2086 # several flags
"$here/kexec" --load "$here/bzImage" --initrd="$here/initrd" --kexec-syscall-auto \
  --command-line "$(cat "$here/cmdline")$consoles" $extra_flags ||
  fail "the kernel did not take the installer; boot the installer's image on this machine."

# From a session of its own and after a while, so that these words arrive and the connection ends first.
sync
# shellcheck disable=SC2016 # expanded by that shell
setsid sh -c 'sleep 5; "$0" -e' "$here/kexec" </dev/null >/dev/null 2>&1 &
echo "kexec: the machine will boot into nixos in 5 s"
