#!/bin/sh
# $1 is a program, $2 what its Python runs with the rest. Of a first line that names no Python (pip
# writes one that starts sh when the path is long) it is the one beside the program.

read -r line <"$1" || exit 0
case $line in
  '#!'*python*) python=${line#??} ;;
  *) python=$(dirname "$(readlink -f "$1")")/python3 ;;
esac
shift
# shellcheck disable=SC2086
exec $python -c "$@" 2>/dev/null
