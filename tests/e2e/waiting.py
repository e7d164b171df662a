"""Waiting as it becomes a machine that is busy with servers: with patience, and without keeping it busy."""

import time
from collections.abc import Callable

__all__ = ["wait_for"]

_ASK_AGAIN_S = 0.2


def wait_for(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold in time"
        time.sleep(_ASK_AGAIN_S)
