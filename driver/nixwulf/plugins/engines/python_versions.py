"""What the Python that an engine's programs run in has to say, on a node."""

from __future__ import annotations

# $1 is a program, $2 what its Python runs with the rest. Of a first line that names no
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
    """What prints the version of each package that there is, without importing it.

    Empty without the program.
    """
    return asking(program, _TELL, *packages) if program else []


def asking(program: str, code: str, *arguments: str) -> list[str]:
    """What runs code in the Python of a program, in silence about errors."""
    return ["sh", "-c", _SCRIPT, "sh", program, code, *arguments]
