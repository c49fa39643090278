"""An 'ssh' that reaches no machine: it answers with what the facts script would print there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from stand_in import put

# '-G' reads the user's own files as ssh does, and a shell here answers the driver's first question,
# which only prints; nothing else is run.
_SSH = """\
case "$*" in
*" -G "*) exec {ssh} "$@" ;;
*" -O "*) exit 0 ;;
esac
for word; do
  case "$word" in *@*) address=${{word#*@}} ;; esac
  command=$word
done
if ! [ -e "{folder}/$address" ]; then
  echo "ssh: connect to host $address port 22: Connection timed out" >&2
  exit 255
fi
case "$*,$command" in
*" -fN "*) ;;
*,"sh -s --"*) cat >/dev/null; cat "{folder}/$address" ;;
*,"sh -c 'echo "*) eval "$command" ;;
*) exit 127 ;;
esac
"""


def put_ssh(folder: Path, answers: Mapping[str, str]) -> Path:
    """Put the program 'ssh' into a folder; answers: by address, other machines are off."""
    texts = folder / "answers"
    texts.mkdir(parents=True)
    for address, text in answers.items():
        # no output: what a caller of this made
        (texts / address).write_text(text)
    return put(folder, "ssh", _SSH.format(ssh=shutil.which("ssh"), folder=texts))
