#!/bin/sh
# Of this login's control group and those above it, quota and period in microseconds; the first case
# is version 2, the second version 1.

while IFS=: read -r _ kinds place; do
  case $kinds in
    '') root=/sys/fs/cgroup ;;
    cpu | cpu,*) root=/sys/fs/cgroup/cpu ;;
    *) continue ;;
  esac
  while :; do
    { read -r quota period <"$root$place/cpu.max" && echo "quota:$quota $period"; } 2>/dev/null
    { read -r quota <"$root$place/cpu.cfs_quota_us" &&
      read -r period <"$root$place/cpu.cfs_period_us" && echo "quota:$quota $period"; } 2>/dev/null
    case $place in */?*) place=${place%/*} ;; *) break ;; esac
  done
done </proc/self/cgroup
