"""The address of a server: what people paste, as a base for paths and as what ssh forwards to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from nixwulf.core.registry import Parameter

_PORTS = {"http": 80, "https": 443}
# What stands behind the base in addresses that documents show: the driver adds its own paths.
_PATHS = re.compile(r"(/v1)?(/(chat/)?completions|/models)?/*$")
# Such as a path may have; a space, a quote or a bracket is a slip of the pen.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@dataclass(frozen=True)
class Url:
    """base: all that stands before /v1; target: its host and port, as ssh forwards to them."""

    base: str
    target: str

    @classmethod
    def of(cls, text: str) -> Url:
        """Of an address that has no problem."""
        parts = urlsplit(text)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        path = _PATHS.sub("", parts.path)
        return cls(
            f"{parts.scheme}://{parts.netloc.lower()}{path}",
            f"{host}:{parts.port or _PORTS[parts.scheme]}",
        )


def problem(text: str) -> str | None:
    """What is expected instead of an address, or None."""
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return "http://HOST:PORT or https://HOST:PORT"
    # urlsplit leaves out what no address has, such as the end of a line.
    if _BLANK.search(text) or parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        return "an address that ends before or after /v1, without '?', '#' and spaces"
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host) or port == 0:
        return "http://HOST:PORT or https://HOST:PORT"
    if "@" in parts.netloc:
        return (
            "no name or password in it, which every record would have; the key of a server is "
            "environment: [{OPENAI_API_KEY: null}]"
        )
    return None


class UrlParameter(Parameter):
    """A parameter that is empty, or the address of a server."""

    def problem(self, value: Any) -> str | None:
        """What was expected instead of a value, or None."""
        found = super().problem(value)
        return found or (problem(value) if value else None)
