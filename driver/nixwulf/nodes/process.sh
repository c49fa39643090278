# Functions for the shell of a node: what drivers own there, and the folder in which that is kept.
# shellcheck shell=sh
# Not in POSIX, but in each sh that a node may have: dash, bash, busybox, zsh, FreeBSD's and macOS's.
# shellcheck disable=SC3067

# The one folder for what nobody else may read or write, made where it is not there: $state. It is
# looked at before each use, because a stranger may have been there first.
private() {
  uid=$(id -u)
  if [ "$uid" = 0 ] && [ -w /run ]; then
    state=/run/nixwulf
  elif [ -O "/run/user/$uid" ]; then
    state=/run/user/$uid/nixwulf
  elif [ -O "${HOME:-/}" ]; then
    state=$HOME/.cache/nixwulf/run
    (umask 077 && mkdir -p "${state%/*}") 2>/dev/null
  else
    state=/tmp/nixwulf-$uid
  fi
  mkdir -m 700 "$state" 2>/dev/null
  if [ -d "$state" ] && [ ! -L "$state" ] && [ -O "$state" ]; then
    # shellcheck disable=SC2012 # stat has other options on each system
    case $(ls -ld "$state") in
    "drwx------ "* | drwx------[.@]*) return 0 ;;
    esac
  fi
  echo "The folder '$state' is not private to user $uid (another's, a link, or open to others);" \
    "remove it on this node." >&2
  return 1
}

# A process number alone could by now be a stranger's: the start time (proc(5), field 22) decides;
# macOS, which has no /proc, gives it to the second.
started() {
  case $1 in '' | *[!0-9]*) return ;; esac
  if { read -r line <"/proc/$1/stat"; } 2>/dev/null; then
    # shellcheck disable=SC2086 # fields
    set -- ${line##*) }
    echo "${20}"
  else
    # shellcheck disable=SC2046
    set -- $(TZ=UTC0 LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null)
    echo "$*"
  fi
}

# Whether a process of that number and start still runs.
same() { [ -n "$2" ] && [ "$(started "$1")" = "$2" ]; }

# A line for each process that still runs of those in files of these names: of this user, and of all
# others whose files may be read, as root may. A lock's second line says whose it is.
living() {
  for folder in "$state" /run/nixwulf /run/user/*/nixwulf; do
    for pattern; do
      for file in "$folder"/$pattern; do
        [ -f "$file" ] && [ ! -L "$file" ] && [ -r "$file" ] || continue
        child='' since='' name=''
        { read -r child _ since && IFS= read -r name; } 2>/dev/null <"$file"
        same "$child" "$since" || continue
        case $file in *.pid) name=${file##*/} name=${name%.pid} ;; esac
        if [ ! -O "$folder" ]; then
          user=${folder%/nixwulf} user=${user##*/}
          name="$name of user $(id -nu "$user" 2>/dev/null || echo "$user")"
        fi
        echo "$name"
      done
    done
  done | sort -u
}

# The locks of this node: of a home that nodes share, another's process numbers say nothing here.
locks() { echo "$(uname -n).*.lock"; }

# What drivers run here: the processes, and who holds the node.
owned() { private && living '*.pid' "$(locks)"; }

# Launchers such as MPI's give each child a process group of its own, inside the session of the
# process that is owned (proc(5), field 6): what is left of the session at the end is ours too.
# macOS shows no sessions, so there such a child is not found.
session() {
  for found in /proc/[0-9]*/stat; do
    { read -r line <"$found"; } 2>/dev/null || continue
    # shellcheck disable=SC2086
    set -- "$1" ${line##*) }
    [ "$5" != "$1" ] || { found=${found#/proc/} && echo "${found%/stat}"; }
  done
}

# The end of process $1 and of what it left in its group, its session and, where nothing comes
# afterwards that ends it in order, in sessions of their own: those have the name $2 of what is
# owned in their environment.
end_all() {
  kill -KILL "-$1" 2>/dev/null || kill -KILL "$1" 2>/dev/null
  for found in $(session "$1"); do kill -KILL "$found" 2>/dev/null; done
  [ -z "$3" ] || return 0
  for found in $(grep -lsF "NIXWULF_UNIT=$2;" /proc/[0-9]*/environ); do
    found=${found#/proc/}
    kill -KILL "${found%/environ}" 2>/dev/null
  done
}

# What comes after the process of a file, which then goes: one of two commands, and no other.
afterwards() {
  private && [ -f "$1" ] || return
  file=$1
  {
    read -r _
    read -r _
    set --
    while IFS= read -r word; do set -- "$@" "$word"; done
  } <"$file"
  case "$*" in
  "podman rm --force --ignore --time=0 "* | /*"/ray stop --force")
    "$@" </dev/null >/dev/null 2>&1
    ;;
  esac
  rm -f "$file"
}

# Owns a process by the name $1 until it ends, or standard input does, and with it the driver. The
# first $2 bytes of that are what to run: no argument shows them. $3 is how long it has after TERM,
# in tenths of a second. The bytes set $mark, after which the
# exit status comes on stderr (ssh's own 255 could be either the program's or the connection's),
# $after (a word a line), $variables, $ready and the command line.
own() {
  name=$1 grace=$3 ready='' scope='' user='' mark='' variables=''
  eval "$(head -c "$2")"
  [ -n "$ready" ] || exit 1
  private || {
    echo "${mark}126" >&2
    exit 0
  }
  file=$state/$name.pid
  if [ -d /run/systemd/system ]; then
    [ "$(id -u)" = 0 ] || user=--user
    scope="systemd-run $user --scope --quiet --collect"
    if $scope true 2>/dev/null; then
      scope="$scope --unit=$name --description=$name"
    else
      scope=
    fi
  fi
  exec 3<&0
  # Without setsid, as on macOS, the job control of a sh that is bash makes the process group; zsh
  # without a terminal ends where it is asked for that.
  setsid=$(command -v setsid) || { (set -m) 2>/dev/null && set -m 2>/dev/null; }
  (
    export NIXWULF_UNIT="$name;"
    eval "$variables"
    # shellcheck disable=SC2086
    exec ${setsid:+setsid} $scope "$@"
  ) </dev/null 3<&- &
  child=$!
  set +m 2>/dev/null
  (umask 077 && {
    echo "$child $$ $(started "$child")"
    started $$
    [ -z "$after" ] || echo "$after"
  } >"$file")
  (
    while read -r _; do :; done <&3
    kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
    waited=0
    while { kill -0 "-$child" || kill -0 "$child"; } 2>/dev/null && [ $waited -lt "$grace" ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    end_all "$child" "$name" "$after"
    [ -z "$scope" ] || systemctl $user stop "$name.scope"
  ) >/dev/null 2>&1 &
  lifeline=$!
  exec 3<&-
  wait "$child" 2>/dev/null
  code=$? # zsh has a 'status' of its own
  end_all "$child" "$name" "$after"
  kill "$lifeline" 2>/dev/null
  afterwards "$file"
  echo "$mark$code" >&2
}

# An owner that was itself killed cannot stop its child: the next driver on the node does. With
# 'all' those of living owners are stopped too.
sweep() {
  private || return 1
  left=
  for file in "$state"/*.pid; do
    [ -f "$file" ] || continue
    child='' owner='' since='' owners='' after=''
    { read -r child owner since && read -r owners && read -r after; } <"$file"
    if [ "$1" = orphans ] && same "$owner" "$owners"; then
      left=1
      continue
    fi
    name=${file##*/}
    if same "$child" "$since"; then
      end_all "$child" "${name%.pid}" "$after"
      echo "$name"
    fi
    afterwards "$file"
  done
  for file in "$state"/$(locks); do
    [ "$1" = all ] && [ -f "$file" ] || continue
    child='' since='' name=''
    { read -r child _ since && IFS= read -r name; } <"$file"
    same "$child" "$since" && kill "$child" && echo "$name"
    rm -f "$file"
  done
  # Folders of runs, of Run.folder(), have names that nobody can know before.
  for folder in /tmp/nixwulf-????????????????; do
    [ -z "$left" ] && [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ] || continue
    rm -rf "$folder"
  done
}

# $first is the number, and $holder the words, of the first living lock of this user whose number is
# less (-lt) or greater (-gt) than $1. Without forks: each costs a millisecond before every sweep.
find_lock() {
  first='' holder=''
  for file in "$lock".*.lock; do
    n=${file#"$lock".} n=${n%.lock}
    test "$n" "$2" "$1" 2>/dev/null || continue
    child='' since='' name=''
    { read -r child _ since && IFS= read -r name; } 2>/dev/null <"$file"
    same "$child" "$since" || continue
    [ "${first:-$n}" -lt "$n" ] || first=$n holder=$name
  done
}

# Takes a number after all there are. Who took one before this one was there, and the next after it
# was gone, has one out of order, and takes another: so nobody takes what another has.
take_number() {
  tries=0
  while [ $tries -lt 40 ]; do
    tries=$((tries + 1)) number=1
    for file in "$lock".*.lock; do
      n=${file#"$lock".} n=${n%.lock}
      [ "$n" -ge $number ] 2>/dev/null && number=$((n + 1))
    done
    ln "$lock.$$" "$lock.$number.lock" 2>/dev/null || continue
    find_lock $number -gt
    [ -n "$first" ] || break
    rm -f "$lock.$number.lock"
  done
  rm -f "$lock.$$"
}

# Holds this node for a driver, which the first line of standard input names, until that ends. It is
# the turn of the lowest number whose process lives: the end of a process leaves nothing that holds.
# A driver that has just ended still stops for some seconds what it ran, and has its turn meanwhile:
# for a turn $1 tenths of a second are waited. Only locks of the same user count: what any local user
# can write would stop everybody's driver, with his words in the refusal.
hold() {
  IFS= read -r words && private || return 1
  node=$(uname -n) lock=$state/$node from=${SSH_CONNECTION%% *}
  words="$words${from:+ at $from}, since $(date -u '+%Y-%m-%d %H:%M') UTC)"
  (umask 077 && printf '%s\n' "$$ $$ $(started $$)" "$words" >"$lock.$$") || return 1
  take_number
  waited=0
  while true; do
    find_lock $number -lt
    [ -n "$holder" ] && [ $waited -lt "$1" ] || break
    sleep 0.1
    waited=$((waited + 1))
  done
  if [ -n "$holder" ]; then
    rm -f "$lock.$number.lock"
    echo "nixwulf-held-by $holder"
    return
  fi
  for file in "$lock".*.lock; do
    n=${file#"$lock".} n=${n%.lock}
    [ "$n" -lt $number ] 2>/dev/null && rm -f "$file"
  done
  echo nixwulf-holds
  while read -r _; do :; done
  waited=0
  while living '*.pid' | grep -qv ' of user ' && [ $waited -lt 40 ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
  rm -f "$lock.$number.lock"
}

# A line for each process of the session of the owned process $1: its program, then its CPU time in
# user mode and in the kernel, all threads' (proc(5), fields 14 and 15).
cpu_times() {
  private || return 1
  { read -r child _ <"$state/$1.pid"; } 2>/dev/null || return 0
  for member in $(session "$child"); do
    { read -r line <"/proc/$member/stat"; } 2>/dev/null || continue
    program=${line#*\(}
    program=${program%)*}
    # shellcheck disable=SC2086
    set -- ${line##*) }
    echo "$program ${12} ${13}"
  done
}
