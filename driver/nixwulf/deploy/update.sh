#!/bin/sh
# Switches a node to another system so that a system which cuts the node off does not stay.
#
#   start NODE NEW SECONDS   arms a timer that goes back to the present system, then activates NEW
#   look NODE NEW            says how that went
#   finish NODE NEW          says so too; when NEW runs, disarms the timer and keeps NEW
#
# Only a connection that began after the activation's end shows that NEW can be reached, so 'finish'
# comes over another one than the 'look' that saw that end. Nothing outlives a reboot before: the
# profile and the boot loader still name the old system. Both parts are units of systemd, because activating may restart
# the network or sshd and with them this script.
set -eu
LC_ALL=C
PATH=/run/current-system/sw/bin:$PATH:/usr/sbin:/sbin
export LC_ALL PATH

mode=$1 node=$2 new=$3
activate=nixwulf-activate
rollback=nixwulf-rollback
profile=/nix/var/nix/profiles/system

refuse() {
  echo "$1" >&2
  exit 3
}

state_of() { systemctl show --property "$2" --value "$1" 2>/dev/null || true; }

# Whether a unit's program runs: one that has ended well stays active as 'exited'.
running() {
  case "$(state_of "$1" SubState)" in
  start* | running | stop*) return 0 ;;
  *) return 1 ;;
  esac
}

# Whether the kernel, its parameters or the first root file system are others than those booted.
reboot_needed() {
  for part in kernel kernel-modules kernel-params initrd; do
    booted=$(readlink -f "/run/booted-system/$part")
    wanted=$(readlink -f "$new/$part")
    if [ "$booted" != "$wanted" ] && ! cmp -s "$booted" "$wanted"; then
      return 0
    fi
  done
  return 1
}

say() {
  echo "state $1"
  exit 0
}

hostname=$(uname -n)
[ "${hostname%%.*}" = "$node" ] ||
  refuse "This machine is '${hostname%%.*}', not '$node'; correct the node's ssh address."
[ "$(id -u)" = 0 ] || refuse "'$(id -un)' cannot switch a system; set the node's ssh to root@."

case "$mode" in
start)
  seconds=$4
  [ -x "$new/bin/switch-to-configuration" ] || refuse "There is no system at '$new'; copy it again."
  old=$(readlink -f /run/current-system)
  [ -x "$old/bin/switch-to-configuration" ] ||
    refuse "'$node' does not run NixOS; deploy it first."
  if [ "$(state_of "$rollback.timer" ActiveState)" = active ] || running "$activate.service"; then
    refuse "Another update of '$node' goes on; wait until it has ended."
  fi
  if [ "$old" = "$new" ] && [ "$(readlink -f "$profile")" = "$new" ]; then
    if reboot_needed; then echo reboot; fi
    say unchanged
  fi
  systemctl stop "$activate.service" "$rollback.service" 2>/dev/null || true
  systemctl reset-failed "$activate.service" "$rollback.service" "$rollback.timer" 2>/dev/null || true
  # An activation that hangs holds a lock, so it is ended first.
  # shellcheck disable=SC2016 # $1 is expanded by the unit's own shell
  systemd-run --quiet --unit="$rollback" --on-active="$seconds" --timer-property=AccuracySec=1s \
    --service-type=oneshot /bin/sh -c \
    '"$1/sw/bin/systemctl" stop nixwulf-activate.service; exec "$1/bin/switch-to-configuration" test' \
    sh "$old"
  systemd-run --quiet --unit="$activate" --service-type=exec --remain-after-exit \
    "$new/bin/switch-to-configuration" test
  say started
  ;;
look | finish)
  if running "$rollback.service"; then say rolling-back; fi
  if [ "$(state_of "$rollback.service" ActiveState)" = failed ]; then say rollback-failed; fi
  if running "$activate.service"; then say busy; fi
  activated=$(state_of "$activate.service" ActiveState)
  if [ "$activated" = failed ]; then
    journalctl --unit="$activate" --lines=5 --output=cat 2>/dev/null | sed 's/^/log /' || true
    systemctl start --no-block "$rollback.service"
    systemctl stop "$rollback.timer" 2>/dev/null || true
    systemctl reset-failed "$activate.service"
    say rolling-back
  fi
  [ "$(readlink -f /run/current-system)" = "$new" ] || say rolled-back
  if [ "$activated" = active ]; then
    if [ "$mode" = look ]; then say activated; fi
    systemctl stop "$rollback.timer" 2>/dev/null || true
    # If that was too late, going back has begun with stopping the activation.
    if running "$rollback.service"; then say rolling-back; fi
    nix-env --profile "$profile" --set "$new"
    "$new/bin/switch-to-configuration" boot >/dev/null
    systemctl stop "$activate.service"
  elif [ "$(readlink -f "$profile")" != "$new" ]; then
    say rolling-back
  fi
  if reboot_needed; then echo reboot; fi
  say updated
  ;;
*)
  refuse "'$mode' is not start, look or finish."
  ;;
esac
