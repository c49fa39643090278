"""OpenSSH's ProxyCommand: hands ssh a TCP connection that was made inside a lab.

A socket belongs to the network namespace of the process that made it. So the supervisor makes it,
this program connects it, and ssh gets the descriptor (ProxyUseFdpass): no process relays bytes.
Run as `python -I -S connect.py CONTROL_SOCKET ADDRESS`; ssh's end is standard output.
"""

import socket
import sys


def main(control: str, address: str) -> None:
    """Pass a connection to port 22 of an address on to standard output, a unix socket."""
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.connect(control)
        supervisor.sendall(b'{"do": "socket"}\n')
        _, descriptors, _, _ = socket.recv_fds(supervisor, 1, 1)
    with socket.socket(fileno=descriptors[0]) as connection:
        connection.settimeout(5)
        connection.connect((address, 22))
        connection.settimeout(None)
        with socket.socket(fileno=1) as ssh:
            socket.send_fds(ssh, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, IndexError) as error:
        sys.exit(f"The lab does not answer ({error}); see: nixwulf lab status")
