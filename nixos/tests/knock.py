"""Sends a TCP SYN or a UDP datagram to ports: knock tcp|udp ADDRESS FIRST-LAST|PORT...

Nothing is awaited: what arrives and what is let in, the other machine counts.
"""

import errno
import socket
import sys
from collections.abc import Iterator


def ports_of(words: list[str]) -> Iterator[int]:
    """Every port of numbers and of ranges such as 1-1023."""
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main(protocol: str, address: str, *words: str) -> None:
    """A socket for each packet, so that no answer to one is an error of the next."""
    kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[protocol]
    family, _, _, _, place = socket.getaddrinfo(address, None, type=kind)[0]
    for port in ports_of(list(words)):
        with socket.socket(family, kind) as sender:
            sender.setblocking(False)
            to = (place[0], port, *place[2:])
            if kind == socket.SOCK_DGRAM:
                sender.sendto(b"", to)
            elif (status := sender.connect_ex(to)) not in (0, errno.EINPROGRESS):
                raise OSError(status, f"port {port} of {address}")


main(*sys.argv[1:])
