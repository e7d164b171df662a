"""Finds free TCP ports on this machine."""

import random
import socket
from contextlib import ExitStack

# Below Linux's range of ports for outgoing connections; otherwise a client could get the port between this check and
# the server's start.
_RANGE = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the moment."""
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Return this number of different ports of 127.0.0.1 that are free at the moment."""
    with ExitStack() as held:
        return [_hold_port(held) for _ in range(count)]


def _hold_port(held: ExitStack) -> int:
    for port in random.sample(_RANGE, len(_RANGE)):
        probe = held.enter_context(socket.socket())
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
        else:
            return port
    raise OSError(f"every port from {_RANGE.start} to {_RANGE.stop - 1} is taken")
