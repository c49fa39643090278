#!/usr/bin/env bash
# What evaluating the flake costs: one node, one more node of the same platform, and all checks. Limits: 15 s a node,
# 40 % of that for one more of its platform, 150 s of CPU time and 8 GB for all checks.
# Usage: tools/nix-figures.sh [NODE [NODE]]   two names of nixosConfigurations, by default of clusters/mini-3.toml
set -euo pipefail
cd "$(dirname "$0")/.."

first=${1:-mini-3-mini1}
second=${2:-mini-3-mini2}
# With its small default heap Nix collects garbage more and more often as it grows: one more node then cost 50 to 80 % of
# the first instead of 30 %. 2 GiB hold three nodes.
export GC_INITIAL_HEAP_SIZE=${GC_INITIAL_HEAP_SIZE:-2G}

if [ ! -x /usr/bin/time ]; then
  echo "nix-figures: /usr/bin/time is missing; install GNU time." >&2
  exit 2
fi

report=$(mktemp)
log=$(mktemp)
trap 'rm -f "$report" "$log"' EXIT

# measure TIMES COMMAND...: sets user (CPU s), wall (s) and peak (KiB) of the run with the least CPU time; others of the
# machine's processes only ever add to it.
measure() {
  local times=$1 run u w p
  shift
  user=
  for ((run = 0; run < times; run++)); do
    if ! /usr/bin/time --quiet -o "$report" -f "%U %e %M" "$@" >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      echo "nix-figures: this failed: $*" >&2
      exit 1
    fi
    read -r u w p <"$report"
    if [ -z "$user" ] || awk "BEGIN { exit !($u < $user) }"; then
      user=$u wall=$w peak=$p
    fi
  done
}

evaluate() {
  local names=""
  for name; do names+=" \"$name\""; done
  measure 3 nix eval --no-eval-cache .#nixosConfigurations \
    --apply "all: map (name: all.\${name}.config.system.build.toplevel.drvPath) [$names ]"
}

gib() { awk -v kib="$1" 'BEGIN { printf "%.1f", kib / 1048576 }'; }

evaluate "$first"
user1=$user wall1=$wall
echo "one node ($first): $user1 s CPU, $wall1 s, $(gib "$peak") GiB"

evaluate "$first" "$second"
awk -v name="$second" -v u1="$user1" -v w1="$wall1" -v u2="$user" -v w2="$wall" 'BEGIN {
  printf "one more (%s): %.2f s CPU (%.0f %%), %.2f s (%.0f %%)\n",
    name, u2 - u1, 100 * (u2 - u1) / u1, w2 - w1, 100 * (w2 - w1) / w1
}'

measure 1 nix flake check --no-build --all-systems
echo "nix flake check --no-build --all-systems: $user s CPU, $wall s, $(gib "$peak") GiB"
