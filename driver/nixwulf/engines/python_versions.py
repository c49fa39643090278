"""The versions of an engine's Python packages on a node, without importing them."""

from __future__ import annotations

# $1 is a program of the packages $3 ..., $2 what its Python runs. Of a first line that names no
# Python (pip writes one that starts sh when the path is long) it is the one beside the program.
_SCRIPT = """
read -r line <"$1" || exit 0
case $line in
  '#!'*python*) python=${line#??} ;;
  *) python=$(dirname "$(readlink -f "$1")")/python3 ;;
esac
shift
exec $python -c "$@" 2>/dev/null
"""
_TELL = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(name, "version", version(name))
    except PackageNotFoundError:
        pass
"""


def command(program: str | None, *packages: str) -> list[str]:
    """What prints a line for each package that there is; empty without the program."""
    return ["sh", "-c", _SCRIPT, "sh", program, _TELL, *packages] if program else []
