"""Sends a packet to each port of an address: a TCP SYN and a UDP datagram, both empty."""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator

PORTS = range(1, 65536)


def syn(port: int) -> bytes:
    """A TCP header with nothing but SYN set."""
    return struct.pack("!HHIIBBHHH", 1, port, 0, 0, 5 << 4, 2, 1024, 0, 0)


def send(sender: socket.socket, packets: Iterator[tuple[bytes, tuple[object, ...]]]) -> None:
    """Sends each packet, again and again where the interface's queue is full."""
    for data, place in packets:
        while True:
            try:
                sender.sendto(data, place)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                os.sched_yield()
            else:
                break


def main(address: str) -> None:
    """Nothing is awaited: what arrives and what is let in, the other machine counts."""
    family, _, _, _, place = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)[0]
    host, rest = place[0], place[2:]
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as segments:
        send(segments, ((syn(port), (host, 0, *rest)) for port in PORTS))
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        send(datagrams, ((b"", (host, port, *rest)) for port in PORTS))


main(*sys.argv[1:])
