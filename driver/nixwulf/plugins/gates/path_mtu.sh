#!/bin/sh
# $@ are pairs of a payload and an address. The first packets over a cable may find no neighbour.
# macOS's ping forbids fragments by -D, and waits for milliseconds. Where small packets pass that
# may be cut and none that may not, ping has no such option.

if [ -e /proc/meminfo ]; then whole="-M do"; wait=1; else whole=-D; wait=1000; fi
ping="ping -n -q -c 1 -W $wait"
try() {
  for _ in 1 2 3; do
    if $ping $whole -s "$1" "$2" >/dev/null 2>&1; then echo "$2 passes"; return; fi
  done
  if ! $ping "$2" >/dev/null 2>&1; then echo "$2 silent"
  elif $ping $whole "$2" >/dev/null 2>&1; then echo "$2 small"
  else echo "$2 unasked"; fi
}
while [ $# -gt 1 ]; do try "$1" "$2" & shift 2; done
wait
