# Functions for the shell of a node, after those of nodes/process.sh: processes that stay when the
# driver has gone. With systemd each is a transient service, of root or of a user who lingers; else,
# as on a node of the lab, it is a session of its own, which ends with the node.
# shellcheck shell=sh

# The folder of the service $1: its files, and of each unit NAME.run (what starts it), NAME.pid and
# NAME.log. It is in the home, for what a boot leaves; nobody else may look into it.
place() {
  folder=${HOME:?}/.local/state/nixwulf/serve/$1
  (umask 077 && mkdir -p "$folder")
}

# Whether systemd takes services of this user here; $user is then its option.
manager() {
  user=
  [ "$(id -u)" = 0 ] || user=--user
  # shellcheck disable=SC2086
  [ -d /run/systemd/system ] && systemctl $user show-environment >/dev/null 2>&1
}

# Writes what starts the unit $2 of the service $1: variables and a command line, from standard
# input, so that no list of processes shows them.
write_unit() {
  place "$1" || return 1
  (
    umask 077
    {
      echo "export PATH='$PATH' HOME='$HOME' NIXWULF_UNIT='nixwulf-serve-$1-$2;'"
      echo "read -r line </proc/\$\$/stat; set -- \${line##*) }"
      printf '%s\n' "printf '%-40s\\n' \"\$\$ \${20}\" 1<>'$folder/$2.pid'"
      cat
    } >"$folder/$2.run"
    : >>"$folder/$2.pid"
    no_process "$folder/$2"
  )
}

# Writes that no process is that of the unit with these files. The file keeps its block, for on a full disk
# there is no other.
no_process() {
  printf '%-40s\n' '' 1<>"$1.pid"
}

# Starts the unit $2 of the service $1. $3 is what it cannot do without, if anything: a model.
start_unit() {
  place "$1" || return 1
  name=nixwulf-serve-$1-$2 log=$folder/$2.log
  if [ -n "$3" ] && ! [ -e "$3" ]; then
    echo "nixwulf-gone $3"
    return 0
  fi
  if living_unit "$folder/$2"; then return 0; fi
  clear_session
  trim "$log" 0
  (umask 077 && : >>"$log")
  no_process "$folder/$2"
  if manager; then
    # shellcheck disable=SC2086
    systemctl $user reset-failed "$name.service" 2>/dev/null
    # shellcheck disable=SC2086
    systemd-run $user --quiet --collect --unit="$name" --property=TimeoutStopSec=5 \
      --property="StandardOutput=append:$log" --property="StandardError=append:$log" \
      /bin/sh "$folder/$2.run"
  else
    setsid /bin/sh "$folder/$2.run" </dev/null >>"$log" 2>&1 &
  fi
  waited=0
  while ! living_unit "$folder/$2" && [ $waited -lt 40 ]; do
    sleep 0.05
    waited=$((waited + 1))
  done
}

# Has systemd start the unit $2 of the service $1 now, after each boot and after each end of it; without
# systemd it starts once.
keep_unit() {
  manager || {
    start_unit "$1" "$2" ''
    return
  }
  place "$1" || return 1
  name=nixwulf-serve-$1-$2 units=/etc/systemd/system target=multi-user.target
  if [ -n "$user" ]; then
    units=$HOME/.config/systemd/user target=default.target
    mkdir -p "$units"
    loginctl enable-linger >/dev/null 2>&1 || echo "nixwulf-warning it ends with this user's last login: loginctl enable-linger failed"
  fi
  # As on NixOS, whose configuration alone makes units that stay.
  [ -w "$units" ] || {
    units=/run/systemd/system
    echo "nixwulf-warning it does not come back after a boot of its node: /etc/systemd/system cannot be written"
  }
  unit_file "$folder/$2" "$target" >"$units/$name.service"
  # shellcheck disable=SC2086
  systemctl $user daemon-reload && systemctl $user enable --quiet "$name.service" 2>/dev/null
  # shellcheck disable=SC2086
  systemctl $user restart "$name.service"
}

# The text of a unit whose files begin with $1, wanted by the target $2.
unit_file() {
  printf '%s\n' "[Unit]" "Description=Nixwulf's watch over what it serves" \
    "After=network-online.target" "StartLimitIntervalSec=0" "[Service]" "ExecStart=/bin/sh \"$1.run\"" \
    "StandardOutput=append:$1.log" "StandardError=append:$1.log" "Restart=always" "RestartSec=5" \
    "[Install]" "WantedBy=$2"
}

# Whether the process of the unit with these files lives; $child is its number, $line of its stat.
living_unit() {
  child='' since=''
  { read -r child since <"$1.pid" && [ -n "$child" ] && read -r line <"/proc/$child/stat"; } 2>/dev/null || return 1
  ticks_of "${line##*) }"
  [ "$since" = "$began" ]
}

# The fields of proc(5) that are looked at, of the end of a line: $state, $leader, $spent, $began.
ticks_of() {
  # shellcheck disable=SC2086
  set -- $1
  state=$1 leader=$4 spent=$((${12} + ${13})) began=${20}
}

# Stops the unit $2 of the service $1: TERM, then KILL after $3 tenths of a second.
stop_unit() {
  place "$1" || return 1
  name=nixwulf-serve-$1-$2
  if manager; then
    # shellcheck disable=SC2086
    systemctl $user disable --quiet "$name.service" 2>/dev/null
    # shellcheck disable=SC2086
    systemctl $user stop "$name.service" 2>/dev/null
    for units in /etc/systemd/system /run/systemd/system "$HOME/.config/systemd/user"; do
      rm -f "$units/$name.service" 2>/dev/null
    done
  fi
  if living_unit "$folder/$2"; then
    kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
    waited=0
    while same "$child" "$since" && [ $waited -lt "$3" ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    end_all "$child" "$name" ''
  fi
  clear_session
  [ ! -e "$folder/$2.pid" ] || no_process "$folder/$2"
}

# Ends what is left of the session of $child, whose leader is gone: while it has members, no other
# process gets that number.
clear_session() {
  [ -n "$child" ] && ! [ -e "/proc/$child" ] || return 0
  for found in $(session "$child"); do kill -KILL "$found" 2>/dev/null; done
}

# Of a log that has more than $2 bytes the end is kept in another file, so that no log fills a disk.
trim() {
  [ -f "$1" ] && [ "$(wc -c <"$1")" -gt "$2" ] || return 0
  tail -c 1048576 "$1" >"$1.old" && : >"$1"
}

# A line for each of the units $2... of the service $1: its name, its process's number and state (a
# letter of proc(5); - for none), and the CPU ticks of its session. Then what sensors tell: watts, 1000ths
# of a degree, kHz of the processors, and kB of memory. It starts no other program, for it runs each five
# seconds.
look() {
  folder=${HOME:?}/.local/state/nixwulf/serve/$1
  shift
  ours=' ' found=
  for unit; do
    if living_unit "$folder/$unit"; then
      ours="$ours$child " found="$found $unit:$child"
    else
      echo "nixwulf-unit $unit 0 - 0"
    fi
  done
  # One walk through /proc for all units: it costs more than all else.
  ticks=
  for one in /proc/[0-9]*/stat; do
    { read -r line <"$one"; } 2>/dev/null || continue
    ticks_of "${line##*) }"
    case $ours in *" $leader "*)
      number=${one#/proc/}
      ticks="$ticks$leader $state $spent ${number%/stat}
"
      ;;
    esac
  done
  for one in $found; do
    unit=${one%:*} child=${one#*:} letter=- sum=0
    while read -r leader state spent number; do
      [ "$leader" = "$child" ] || continue
      sum=$((sum + spent))
      [ "$number" != "$child" ] || letter=$state
    done <<EOF
$ticks
EOF
    [ "$letter" != Z ] && [ "$letter" != X ] || letter=-
    echo "nixwulf-unit $unit $child $letter $sum"
  done
  for one in /sys/class/hwmon/hwmon*; do
    { read -r kind <"$one/name"; } 2>/dev/null || continue
    case $kind in amdgpu | k10temp | zenpower | coretemp | cpu_thermal) ;; *) continue ;; esac
    { read -r value <"$one/temp1_input"; } 2>/dev/null && echo "nixwulf-millidegrees $kind $value"
    [ "$kind" = amdgpu ] || continue
    for file in "$one/power1_average" "$one/power1_input"; do
      { read -r value <"$file"; } 2>/dev/null && echo "nixwulf-microwatts $value" && break
    done
  done
  for one in /sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq; do
    { read -r value <"$one"; } 2>/dev/null && echo "nixwulf-kilohertz cpu $value"
  done
  while read -r key value _; do
    case $key in MemTotal: | MemAvailable:) echo "nixwulf-memory $key $value" ;; esac
  done 2>/dev/null </proc/meminfo
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=power.draw,temperature.gpu,clocks.sm --format=csv,noheader,nounits |
      sed 's/^/nixwulf-nvidia /'
  fi
  :
}

# All that may tell why a server stands still: the last lines of the logs of the units $2... of the
# service $1, their stacks where a debugger is there, the kernel's words, addresses and memory.
evidence() {
  place "$1" || return 1
  shift
  for unit; do
    echo "== the last lines of $unit"
    tail -n 500 "$folder/$unit.log" 2>/dev/null
    living_unit "$folder/$unit" || continue
    echo "== process $child of $unit"
    grep -E '^(State|Threads|VmRSS|voluntary)' "/proc/$child/status"
    cat "/proc/$child/wchan" "/proc/$child/stack" 2>/dev/null
    echo
    if command -v py-spy >/dev/null && case $(readlink "/proc/$child/exe") in *python*) : ;; *) false ;; esac; then
      timeout 10 py-spy dump --pid "$child"
    elif command -v gdb >/dev/null; then
      timeout 10 gdb -p "$child" -batch -nx -ex 'thread apply all bt 20' </dev/null
    else
      echo "No stacks: this node has neither gdb nor py-spy."
    fi 2>&1 | tail -n 400
  done
  echo "== the node"
  cat /proc/loadavg /proc/meminfo 2>/dev/null | head -n 6
  df -h "$folder" 2>/dev/null
  echo "== the kernel"
  dmesg 2>&1 | tail -n 100
}

# Keeps the logs of the units $2... of the service $1 short.
trim_logs() {
  place "$1" || return 1
  shift
  for unit; do trim "$folder/$unit.log" 67108864; done
}

# The services whose files are in this home, and where the file $1 of each is.
services() {
  for one in "$HOME"/.local/state/nixwulf/serve/*/"$1"; do
    [ -f "$one" ] || continue
    one=${one%/*}
    echo "${one##*/}"
  done
}

# Prints the file $2 of the service $1, of which $3 is how many lines from the end; empty: all.
show() {
  place "$1" || return 1
  if [ -n "$3" ]; then tail -n "$3" "$folder/$2" 2>/dev/null; else cat "$folder/$2" 2>/dev/null; fi
  :
}

# Writes the file $2 of the service $1 whole from standard input, or adds to it ($3: add).
save() {
  place "$1" || return 1
  umask 077
  case $2 in */*) mkdir -p "$folder/${2%/*}" ;; esac
  if [ "$3" = add ]; then
    cat >>"$folder/$2"
  else
    cat >"$folder/$2.part" && mv -f "$folder/$2.part" "$folder/$2"
  fi
}
