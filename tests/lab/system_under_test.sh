# shellcheck shell=sh
# Makes a system of a lab's node: $1 is its name. A hook in /run/hooks/NAME is what goes wrong when it is activated.
set -e
mkdir -p /run/records /run/units /run/hooks "/run/systems/$1/bin" "/run/systems/$1/sw/bin"
cd "/run/systems/$1"
for part in kernel initrd kernel-modules; do ln -sfn "/run/parts/$part" $part; done
echo "quiet" >kernel-params

cat >bin/switch-to-configuration <<'END'
#!/bin/sh
own=$(cd "$(dirname "$0")/.." && pwd)
echo "$own $1" >>/run/records/switch
if [ "$1" = test ]; then
  ln -sfn "$own" /run/current-system
  pkill -CONT sshd
  [ ! -e "/run/hooks/${own##*/}" ] || . "/run/hooks/${own##*/}"
elif [ -e "/run/hooks/boot-${own##*/}" ]; then
  . "/run/hooks/boot-${own##*/}"
fi
END
cat >sw/bin/systemd-run <<'END'
#!/bin/sh
echo "$*" | tr '\n' ' ' | sed 's/ $//' >>/run/records/systemd-run
echo >>/run/records/systemd-run
while [ "${1#--}" != "$1" ]; do
  case "$1" in
  --unit=*) unit=${1#*=} ;;
  --on-active=*) delay=${1#*=} ;;
  esac
  shift
done
if [ -n "$delay" ]; then
  echo active >"/run/units/$unit.timer.ActiveState"
  echo $$ >"/run/units/$unit.timer.id"
  setsid sh -c 'id=$1 delay=$2 unit=$3; shift 3; sleep "$delay"
    if [ "$(cat "/run/units/$unit.timer.id" 2>/dev/null)" = "$id" ]; then
      rm "/run/units/$unit.timer".*; echo start >"/run/units/$unit.service.SubState"
      "$@"; rm -f "/run/units/$unit.service.SubState"
    fi' sh $$ "$delay" "$unit" "$@" </dev/null >/dev/null 2>&1 &
  printf "'%s' " "$@" >"/run/units/$unit.command"
else
  echo running >"/run/units/$unit.service.SubState"
  echo active >"/run/units/$unit.service.ActiveState"
  setsid sh -c 'unit=$1; shift; "$@"; code=$?
    if [ $code = 0 ]; then state=active; else state=failed; fi
    [ -e "/run/units/$unit.service.ActiveState" ] || exit
    echo $code >"/run/units/$unit.service.ExecMainStatus"
    echo $state >"/run/units/$unit.service.ActiveState"
    echo exited >"/run/units/$unit.service.SubState"' sh "$unit" "$@" </dev/null >/dev/null 2>&1 &
fi
END
cat >sw/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/run/records/systemctl
verb=$1; shift
if [ "$verb" = list-units ]; then
  cat /run/units/failed 2>/dev/null
  # A transient unit that failed is listed like any other.
  grep -lx failed /run/units/*.ActiveState 2>/dev/null |
    sed 's|.*/||; s|.ActiveState$| loaded failed failed x|'
  exit 0
fi
while [ $# -gt 0 ]; do
  case "$1" in
  --property) property=$2; shift ;;
  --*) ;;
  *) case "$verb" in
    show) if [ "$1" = '*.service' ]; then cat /run/units/restarts 2>/dev/null; exit 0; fi
      [ ! -e /run/hooks/asked ] || . /run/hooks/asked
      cat "/run/units/$1.$property" 2>/dev/null || echo inactive ;;
    stop | reset-failed) rm -f "/run/units/$1".* ;;
    start) eval "$(cat "/run/units/${1%.service}.command")" ;;
    esac ;;
  esac
  shift
done
END
cat >sw/bin/nix-env <<'END'
#!/bin/sh
echo "$*" >>/run/records/nix-env
# Only where a test has given the node a /nix of its own.
[ -e /nix/own ] || exit 0
case "$3" in
--set) ln -sfn "$4" "$2-2-link" && ln -sfn system-2-link "$2" ;;
--switch-generation) ln -sfn "system-$4-link" "$2" ;;
esac
END
cat >sw/bin/sync <<'END'
#!/bin/sh
for path; do :; done
# A machine without Nix has no /nix.
[ ! -e "$path" ] || exec /bin/sync "$@"
END
cat >sw/bin/bootctl <<'END'
#!/bin/sh
echo /run/hooks/esp
END
cat >sw/bin/journalctl <<'END'
#!/bin/sh
echo "the unit llama.service failed"
END
chmod +x bin/* sw/bin/*
