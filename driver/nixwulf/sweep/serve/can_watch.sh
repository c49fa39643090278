# Whether a program here, $1 or the nixwulf on PATH, is version $2, and which of the other nodes, $3
# and on, cannot be reached from here.
# shellcheck shell=sh

for one in "$1" nixwulf; do
  "$one" --version 2>/dev/null | grep -qF "version $2" || continue
  echo "program $(command -v "$one")"
  break
done
shift 2
for one; do
  ssh -o BatchMode=yes -o ConnectTimeout=5 "$one" true </dev/null 2>/dev/null || echo "lost $one"
done
