#!/bin/sh
# Switches a node to another system so that a system which cuts the node off does not stay.
#
#   previous NODE                 prints the generation before the present one: number, system, and words about it
#   start NODE NEW SECONDS [N]    arms a timer that goes back to the present system, then activates NEW, which is generation N
#   look NODE NEW                 says how that went
#   finish NODE NEW               says so too; when NEW runs, keeps NEW and disarms the timer
#
# Only a connection that began after the activation's end shows that NEW can be reached, so 'finish'
# comes over another one than the 'look' that saw that end. Before that, the profile and the boot
# loader name the old system; 'finish' changes both while the timer is still armed, and going back
# restores both. All parts are units of systemd, because activating may restart the network or sshd
# and with them this script.
set -eu
LC_ALL=C
PATH=/run/current-system/sw/bin:$PATH:/usr/sbin:/sbin
export LC_ALL PATH

mode=$1 node=$2 new=${3:-}
activate=nixwulf-activate
rollback=nixwulf-rollback
profile=/nix/var/nix/profiles/system
state=/run/nixwulf-update

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

# Whether any of these parts is another than the one that was booted.
other_than_booted() {
  for part; do
    booted=$(readlink -f "/run/booted-system/$part")
    wanted=$(readlink -f "$new/$part")
    if [ "$booted" != "$wanted" ] && ! cmp -s "$booted" "$wanted"; then
      return 0
    fi
  done
  return 1
}

# Whether the kernel, its parameters or the first root file system wait for a reboot.
reboot_needed() { other_than_booted kernel kernel-modules kernel-params initrd; }

say() {
  echo "state $1"
  exit 0
}

# Units that failed, or wait for their next start after they did; the update's own fail with any of them.
failed_units() {
  systemctl list-units --state=failed,auto-restart,auto-restart-queued --plain --no-legend --full |
    sed 's/ .*//' | grep -vx -e "$activate.service" -e "$rollback.service" | sort -u
}

# Those, and services that were started again: one of them may be running just now.
unsteady_units() {
  failed_units
  systemctl show --property=Id,NRestarts '*.service' |
    awk -F= '$1 == "Id" { id = $2 } $1 == "NRestarts" { count = $2 }
      $0 == "" { if (count > 0) print id; count = 0 } END { if (count > 0) print id }'
}

# switch-to-configuration exits with 4 for any unit that has failed, also for one that it left alone.
# Only a unit that was steady before is a reason to go back.
failed_now() {
  [ "$(state_of "$1" ExecMainStatus)" = 4 ] || return 0
  failed_units >"$state/after"
  sort -u "$state/before" | comm -13 - "$state/after" >"$state/failed"
  [ -s "$state/failed" ]
}

# The units, where some failed: the journal's last lines are systemd's accounts of CPU time.
why() {
  if [ -s "$state/failed" ]; then
    echo "log $(sed "s/.*/'&'/" "$state/failed" | paste -s -d ' ') failed, see\
 'journalctl --boot$(sed 's/^/ --unit=/' "$state/failed" | tr -d '\n')' there"
  else
    journalctl _SYSTEMD_UNIT="$activate.service" --lines=5 --output=cat 2>/dev/null |
      sed 's/^/log /' || true
  fi
}

hostname=$(uname -n)
# After a switch that renamed it, the kernel has the old name until the next boot.
[ "${hostname%%.*}" = "$node" ] || [ "$(cat /etc/hostname 2>/dev/null)" = "$node" ] ||
  refuse "This machine is '${hostname%%.*}', not '$node'; correct the node's ssh address."
[ "$(id -u)" = 0 ] || refuse "'$(id -un)' cannot switch a system; set the node's ssh to root@."

# What the new system mounts has to be there: the names of a node's partitions follow its disk in the
# cluster file, and a kernel that does not fit on the partition that boots leaves the old one there.
check_disks() {
  [ -r "$new/etc/fstab" ] || return 0
  while read -r device place type options _; do
    case "$device,$options" in
    *,*nofail* | *,*noauto*) ;;
    /dev/*)
      [ -e "$device" ] || refuse "The new system of '$node' mounts '$place' from '$device', which is\
 not there; set its disk back in the cluster file, or deploy it again."
      ;;
    esac
    # The kernel of an earlier generation is there already.
    if [ -z "$1" ] && [ "$type" = vfat ] && [ -d "$place" ] && other_than_booted kernel initrd; then
      wanted=$(du -kcL "$new/kernel" "$new/initrd" | sed -n '$s/\t.*//p')
      has_room "$place" $((wanted + 1024 - $(freed_first "$place"))) " && $old/bin/switch-to-configuration boot"
    fi
  done <"$new/etc/fstab"
  has_room / 262144 ""
}

# How the files that boot a system are called on the partition by NixOS's installer of systemd-boot.
boot_files() {
  for part in kernel initrd; do
    readlink -f "$1/$part" | sed 's|^/nix/store/||; s|/.*/|/|; s|/|-|; s|$|.efi|'
  done
}

# KiB on the partition that boots that the new system's boot loader frees before it writes: those of generations beyond its limit.
freed_first() {
  limit=$(cat "$new/etc/nixwulf/boot-generations" 2>/dev/null || true)
  if [ -n "$limit" ]; then
    kept=$(
      boot_files "$new"
      printf '%s\n' "$profile"-*-link | sort -V | tail -n $((limit - 1)) |
        while read -r link; do boot_files "$link"; done
    )
    for file in "$1"/EFI/nixos/*.efi; do
      printf '%s\n' "$kept" | grep -qxF -e "${file##*/}" || du -k "$file" 2>/dev/null || true
    done
  fi | awk '{ freed += $1 } END { print freed + 0 }'
}

has_room() {
  free=$(df -kP "$1" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$2" ] ||
    refuse "'$1' of '$node' has $((free / 1024)) MB left, and an update needs $(($2 / 1024)) MB;\
 delete old systems there: 'nix-collect-garbage --delete-older-than 30d$3'."
}

# Interface and unit of each service that a system's udev rules start when the interface appears.
fabric_services() {
  cat "$1"/etc/udev/rules.d/*.rules 2>/dev/null |
    sed -n 's/^SUBSYSTEM=="net", KERNEL=="\([^"]*\)".*ENV{SYSTEMD_WANTS}+="\([^"]*\)".*/\1 \2/p' |
    sort -u
}

# A switch replays no event of udev: what is new and starts with an interface that is there already is started here. A node that
# booted the new system, its power cut while it was kept, has started everything and knows no old one.
start_new_services() {
  [ -e "$state/old" ] || return 0
  fabric_services "$(cat "$state/old")" >"$state/services"
  fabric_services "$new" | comm -13 "$state/services" - >"$state/new-services"
  while read -r interface unit; do
    if [ -e "/sys/class/net/$interface" ] && [ "$(state_of "$unit" ActiveState)" = inactive ]; then
      timeout 60 systemctl start "$unit" </dev/null >/dev/null 2>&1 || echo "idle $unit"
    fi
  done <"$state/new-services"
}

go_back() {
  systemctl start --no-block "$rollback.service"
  systemctl stop "$rollback.timer" 2>/dev/null || true
  say rolling-back
}

# Installs the boot loader of the system $1. NixOS's installer of systemd-boot has two traits that a power cut turns into a
# node that does not boot or cannot be updated (nixos/modules/system/boot/loader/systemd-boot):
# * It deletes entries before it writes others in their place, the running system's too where its text has changed: the first
#   update adds the machine's id. A cut between left a menu without any system. So copies under names that it does not know
#   are on the disk until it has ended.
# * It makes loader.tmp, and fails for ever where a full partition or a cut left one.
# shellcheck disable=SC2016 # for this shell and that of the unit that goes back
install='install_boot_loader() {
  loader=$(bootctl --print-esp-path 2>/dev/null)/loader
  rm -f "$loader/loader.tmp" "$loader"/entries/nixos-*.tmp
  for entry in "$loader"/entries/nixos-*.conf; do
    kept=$loader/entries/kept-$(echo "${entry##*/nixos-}" | sed "s/[+].*/.conf/")
    case "$entry" in
    *+0*) ;; # no tries left: it did not come up
    *) [ ! -f "$entry" ] || cp "$entry" "$kept" || rm -f "$kept" ;;
    esac
  done
  [ ! -d "$loader" ] || sync -f "$loader"
  "$1/bin/switch-to-configuration" boot || { installed=$?; rm -f "$loader/loader.tmp"; return "$installed"; }
  rm -f "$loader"/entries/kept-*.conf
  [ ! -d "$loader" ] || sync -f "$loader"
}'
eval "$install"

# shellcheck disable=SC2016 # as above
number='number() { echo "$1" | tr -dc "0-9\n"; }'
eval "$number"

# Activates the system $1, up to three times: an error of the switch's own (1) may leave it half done, without its addresses. Seen
# where a session of root ended while units of users were reloaded, as the driver's own do: "Failed to get GID for root".
# shellcheck disable=SC2016 # as above
switch='switch() {
  for attempt in 1 2 3; do
    "$1/bin/switch-to-configuration" test
    code=$?
    [ "$code" = 1 ] || break
    sleep "$attempt"
  done
  return "$code"
}'

# $1 is the system to go back to, $2 the profile, $3 where it led; $4 is there when 'finish' has begun
# to change it. An activation that hangs holds a lock, so it is ended first. 'finish' may be changing the profile just now, so
# that comes last.
# shellcheck disable=SC2016 # expanded by the unit's own shell
back="$install
$number
$switch"'
PATH=$1/sw/bin:$PATH; export PATH
systemctl stop nixwulf-activate.service
switch "$1"
code=$?
failed=$(readlink "$2")
if [ -n "$3" ] && [ "$failed" != "$3" ]; then
  ln -sfn "$3" "$2.old" && mv -T "$2.old" "$2"
  # The generation that an update made goes; an earlier one, to which somebody wanted to go back, stays.
  [ "$(number "$failed")" -lt "$(number "$3")" ] || rm -f "${2%/*}/$failed"
fi
if [ -e "$4" ]; then install_boot_loader "$1" || touch "${4%/*}/no-boot-loader"; fi
exit "$code"'

# arm SYSTEM GENERATION OPTION...   makes the unit that goes back to the system, at once or when the options say.
arm() {
  back_to=$1 generation=$2
  shift 2
  echo "$back_to" >"$state/old"
  systemd-run --quiet --unit="$rollback" "$@" --service-type=oneshot /bin/sh -c "$back" \
    sh "$back_to" "$profile" "$generation" "$state/keeping"
}

# The profile's generation that is this system.
generation_of() {
  for link in "$profile"-*-link; do
    if [ "$(readlink -f "$link")" = "$1" ]; then echo "${link##*/}"; fi
  done | tail -n 1
}

case "$mode" in
previous)
  present=$(readlink "$profile" || true)
  before=$(for link in "$profile"-*-link; do number "${link##*/}"; done | sort -n |
    awk -v present="$(number "$present")" '$1 < present { found = $1 } END { print found }')
  link=$profile-$before-link
  [ -n "$before" ] || refuse "'$node' has no generation before '${present:-$profile}'; update it to\
 the configuration that it is to run."
  made=$(stat -c %y "$link")
  echo "previous $before $(readlink -f "$link") of ${made%%.*}"
  ;;
start)
  seconds=$4 generation=${5:-}
  [ -x "$new/bin/switch-to-configuration" ] || refuse "There is no system at '$new'; copy it again."
  old=$(readlink -f /run/current-system)
  [ -x "$old/bin/switch-to-configuration" ] ||
    refuse "'$node' does not run NixOS; deploy it first."
  if [ "$(state_of "$rollback.timer" ActiveState)" = active ] || running "$activate.service" ||
    running "$rollback.service"; then
    refuse "Another update of '$node' goes on; wait until it has ended."
  fi
  check_disks "$generation"
  if [ "$old" = "$new" ] && [ "$(readlink -f "$profile")" = "$new" ]; then
    # Whether the boot loader knows it too cannot be read everywhere; installing it again is harmless.
    words=$(install_boot_loader "$new" 2>&1) ||
      refuse "'$node' runs this system already and cannot make it the one that boots: $(echo \
        "$words" | tail -n 3 | tr '\n' ' '); run '$new/bin/switch-to-configuration boot' there."
    if reboot_needed; then echo reboot; fi
    say unchanged
  fi
  # Copied files may be in memory only, and what a power cut leaves of them would count as copied.
  sync -f "$new"
  systemctl stop "$activate.service" "$rollback.service" 2>/dev/null || true
  systemctl reset-failed "$activate.service" "$rollback.service" "$rollback.timer" 2>/dev/null || true
  rm -rf "$state"
  mkdir -p "$state"
  unsteady_units >"$state/before"
  echo "$generation" >"$state/generation"
  arm "$old" "$(readlink "$profile" || true)" --on-active="$seconds" --timer-property=AccuracySec=1s
  systemd-run --quiet --unit="$activate" --service-type=exec --remain-after-exit \
    /bin/sh -c "$switch"'; switch "$1"' sh "$new"
  say started
  ;;
look | finish)
  if running "$rollback.service"; then say rolling-back; fi
  if [ "$(state_of "$rollback.service" ActiveState)" = failed ] && failed_now "$rollback.service"; then
    say rollback-failed
  fi
  if running "$activate.service"; then say busy; fi
  activated=$(state_of "$activate.service" ActiveState)
  if [ "$activated" = failed ]; then
    if failed_now "$activate.service"; then
      why
      systemctl reset-failed "$activate.service"
      go_back
    fi
    activated=active
  fi
  if [ "$(readlink -f /run/current-system)" != "$new" ]; then
    # The power was cut in 'finish', and the node boots the old system.
    if [ "$(readlink -f "$profile")" = "$new" ]; then
      old=$(readlink -f /run/current-system)
      generation=$(generation_of "$old")
      if [ -n "$generation" ]; then
        mkdir -p "$state"
        touch "$state/keeping"
        systemctl reset-failed "$rollback.service" 2>/dev/null || true
        arm "$old" "$generation" --no-block
        say rolling-back
      fi
    fi
    if [ -e "$state/no-boot-loader" ]; then
      echo "log Its boot loader could not be installed again: make room on the partition that boots,\
 and run '$(cat "$state/old")/bin/switch-to-configuration boot' there"
    fi
    say rolled-back
  fi
  if [ "$activated" = active ]; then
    if [ "$mode" = look ]; then say activated; fi
    touch "$state/keeping"
    generation=$(cat "$state/generation")
    if [ -n "$generation" ]; then
      nix-env --profile "$profile" --switch-generation "$generation"
    else
      nix-env --profile "$profile" --set "$new"
    fi
    # On the disk before the boot loader, which syncs its own partition, names the new system.
    sync -f "${profile%/*}"
    if ! install_boot_loader "$new" >"$state/boot.log" 2>&1; then
      tail -n 5 "$state/boot.log" | sed 's/^/log /'
      go_back
    fi
    systemctl stop "$rollback.timer" 2>/dev/null || true
    # The timer may have been faster: then all of it goes back, or has gone back and does so again.
    if running "$rollback.service"; then say rolling-back; fi
    [ "$(readlink -f /run/current-system)" = "$new" ] || go_back
    systemctl stop "$activate.service"
    systemctl reset-failed "$activate.service" 2>/dev/null || true
  elif [ "$(readlink -f "$profile")" != "$new" ]; then
    say rolling-back
  fi
  start_new_services
  if reboot_needed; then echo reboot; fi
  say updated
  ;;
*)
  refuse "'$mode' is not previous, start, look or finish."
  ;;
esac
