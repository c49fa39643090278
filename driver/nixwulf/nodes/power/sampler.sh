# shellcheck shell=sh
# Samples what a node tells of its power, its heat and its clocks until it is stopped; as little as
# possible of it is work for another process, because it runs beside what is being measured.
# $1: the folder that has /sys (empty, except in tests). $2: seconds between two samples.
# Facts come first, as "# KEY VALUE", then "# ready"; a sample is "UPTIME KEY VALUE [KEY VALUE ...]".
root=$1 interval=$2
export LC_ALL=C
first() { { read -r value <"$1"; } 2>/dev/null; }

if [ "$(uname)" = Darwin ]; then
  echo "# boot $(sysctl -n kern.bootsessionuuid)"
  echo "# have powermetrics"
  echo "# ready"
  # Root's powermetrics takes no signal from us: it ends by itself when nobody reads on.
  sudo -n powermetrics --samplers cpu_power,gpu_power,thermal -b 1 \
    -i "$(echo "$interval" | awk '{ print $1 * 1000 }')" 2>&1 | cat
  exit
fi

first "$root/proc/sys/kernel/random/boot_id" && echo "# boot $value"
often='' seldom='' frequencies='' throttles=''

# Packages only: their subdomains (core, uncore, dram) are in them, and they in psys.
for zone in "$root"/sys/class/powercap/intel-rapl:*; do
  key=${zone##*/intel-}
  first "$zone/name" || continue
  case $value in package-*) ;; *) continue ;; esac
  if first "$zone/energy_uj"; then
    first "$zone/max_energy_range_uj" && echo "# range $key $value"
    often="$often $key $zone/energy_uj"
  else
    echo "# unreadable $key"
  fi
done

for sensor in "$root"/sys/class/hwmon/hwmon*; do
  first "$sensor/name" || continue
  name=$value
  if [ "$name" = amdgpu ]; then
    for file in power1_average power1_input; do
      first "$sensor/$file" && often="$often amdgpu:${sensor##*/} $sensor/$file" && break
    done
  fi
  case $name in
    amdgpu | k10temp | zenpower | coretemp)
      first "$sensor/temp1_input" || continue
      echo "# sensor ${sensor##*/} $name"
      seldom="$seldom temp:${sensor##*/} $sensor/temp1_input"
      ;;
  esac
done
for zone in "$root"/sys/class/thermal/thermal_zone*; do
  first "$zone/temp" || continue
  seldom="$seldom temp:${zone##*/} $zone/temp"
  first "$zone/type" && echo "# sensor ${zone##*/} $value"
done

limit=0
for policy in "$root"/sys/devices/system/cpu/cpufreq/policy*; do
  first "$policy/scaling_cur_freq" || continue
  frequencies="$frequencies $policy/scaling_cur_freq"
  first "$policy/cpuinfo_max_freq" && limit=$((limit + value))
done
for cpu in "$root"/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle; do
  first "$cpu/package_throttle_count" && throttles="$throttles $cpu"
done

videocore=''
command -v vcgencmd >/dev/null && videocore=$(vcgencmd get_throttled 2>&1)
case $videocore in
  throttled=*) echo "# have vcgencmd" ;;
  ?*) echo "# refused vcgencmd $videocore" && videocore='' ;;
esac

nvidia=''
if command -v nvidia-smi >/dev/null; then
  # Drivers since 535 say "event" where older ones said "throttle".
  reasons=clocks_event_reasons.active
  nvidia-smi --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1 ||
    reasons=clocks_throttle_reasons.active
  if words=$(nvidia-smi --query-gpu=index,power.draw,$reasons --format=csv,noheader 2>&1); then
    nvidia=$reasons
    echo "# have nvidia-smi"
  else
    echo "# refused nvidia-smi $(echo "$words" | tr '\n' ' ')"
  fi
fi

echo "# ready"
[ -n "$often$seldom$frequencies$throttles$videocore$nvidia" ] || exit 0

if [ -n "$nvidia" ]; then
  nvidia-smi --query-gpu=index,power.draw,temperature.gpu,clocks.sm,clocks.max.sm,$nvidia \
    --format=csv,noheader,nounits --loop-ms="$(echo "$interval" | awk '{ print $1 * 1000 }')" |
    while IFS= read -r words; do
      read -r at _ </proc/uptime
      echo "$at nvidia $words"
    done &
fi

# The values of pairs of a key and a file, after the time.
sample() {
  line=''
  while [ $# -gt 1 ]; do
    first "$2" && line="$line $1 $value"
    shift 2
  done
  [ -z "$line" ] || echo "$now$line"
}

clocks() {
  sum=0 count=0
  for file in $frequencies; do
    first "$file" && sum=$((sum + value)) count=$((count + 1))
  done
  [ $count = 0 ] || echo "$now khz $((sum / count)) khz_limit $((limit / count))"
  [ -n "$throttles" ] || return
  core=0 package=0
  for folder in $throttles; do
    first "$folder/core_throttle_count" && core=$((core + value))
    first "$folder/package_throttle_count" && package=$((package + value))
  done
  echo "$now count:core_throttle $core count:package_throttle $package"
}

# The firmware answers by a program alone: three processes a second.
firmware() {
  echo "$now vcgencmd $(vcgencmd get_throttled)"
  echo "$now vcgencmd $(vcgencmd measure_temp)"
  vcgencmd pmic_read_adc 2>/dev/null | while IFS= read -r words; do echo "$now pmic $words"; done
}

loop() {
  turn=0
  while :; do
    read -r now _ </proc/uptime
    # shellcheck disable=SC2086 # a list of words; no path of these has a space
    sample $often
    if [ $turn = 0 ]; then
      # shellcheck disable=SC2086
      sample $seldom
      clocks
      [ -z "$videocore" ] || firmware
    fi
    turn=$(((turn + 1) % 5))
    wait_a_moment
  done
}

# Starting `sleep` five times a second costs more than all the rest: a shell that can (bash, not
# dash) waits by reading from a pipe into which nobody writes.
# shellcheck disable=SC3045
if echo | read -r -t 0.5 _ 2>/dev/null; then
  wait_a_moment() { read -r -t "$interval" _; }
  sleep 2147483647 | loop
else
  wait_a_moment() { sleep "$interval"; }
  loop
fi
