"""Names from elsewhere (a server's answer, a peer, an archive, a record): joined to a folder here.

Nodes run this file as text too: Python 3.9 or later, and its standard library alone.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

_LONGEST, _LONGEST_PART = 1024, 240  # bytes; a part may get an ending of ours and has 255 at most
# What other systems open as a device, whatever follows the first full stop, and what has a colon:
# their drives and the streams of their files.
_DEVICES = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?|.*:.*",
    re.IGNORECASE,
)
# Control characters, marks of direction, half characters, ends of lines.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class Refusal(Exception):
    """A sentence for the user, without its full stop."""


def join(folder: Path, name: str, *, link: bool = False) -> Path:
    """The path of a name of somebody else's in a folder; the one place where such a path is made.

    link: the last part may itself be a link that leads elsewhere: a model on another disk.

    Raises Refusal for a name that leads elsewhere, here or on another system.
    """
    if reason := fault(name):
        raise Refusal(f"{_shown(name)} is no name of a file in {str(folder)!r}: {reason}")
    path = folder / name
    home = os.path.realpath(folder)
    if os.path.commonpath([os.path.realpath(path.parent if link else path), home]) != home:
        raise Refusal(f"{str(path)!r} leads outside of {str(folder)!r}: a link is on its way")
    return path


def fault(name: object) -> str:
    """Say what is wrong with a name; empty for a good one."""
    if not isinstance(name, str) or not name:
        return "it is no text"
    if any(unicodedata.category(one) in _UNSEEN for one in name):
        return "it has a character that is not seen"
    if len(name.encode()) > _LONGEST:
        return f"it has more than {_LONGEST} bytes"
    if "\\" in name:
        return "it has a '\\\\', which other systems take for '/'"
    for part in name.split("/"):
        if part.strip(" .") == "" or part.endswith((" ", ".")):
            return "a part of it is empty, or ends with a full stop or a blank"
        if len(part.encode()) > _LONGEST_PART:
            return f"a part of it has more than {_LONGEST_PART} bytes"
        if _DEVICES.fullmatch(part):
            return f"{part!r} is a device, a drive or a stream of another system"
    return ""


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _LONGEST_PART else f"{text[:_LONGEST_PART]}..."
