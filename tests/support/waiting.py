"""Waits for a condition, never for time to pass."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0, *, every_s: float = 0.01) -> None:
    """Return as soon as the condition holds; fail if it does not hold before the timeout.

    The timeout ends a test that hangs. It says nothing about speed, so a test needs a shorter one only to fail sooner.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(every_s)
