"""Gives TCP ports to servers that a test starts.

Many servers cannot choose a port themselves, or need the same port again after a restart. So a port is bound here
before anybody learns its number, and stays bound until this process ends: the kernel gives it to no other program,
neither to a server nor to a client's connection. The socket does not listen and has SO_REUSEADDR. So a server that has
SO_REUSEADDR too, as servers have, can listen on the port, and without a server each connection is refused.
"""

import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that no other program can get while this process runs."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = int(held.getsockname()[1])
    held.detach()  # the descriptor stays open until the process ends
    return port


def free_ports(count: int) -> list[int]:
    """Return this number of ports, as from `free_port`."""
    return [free_port() for _ in range(count)]
