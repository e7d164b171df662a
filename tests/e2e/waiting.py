"""Waits for a condition on a machine that is busy with servers: with a long timeout and rare checks."""

from collections.abc import Callable

from support import waiting


def wait_for(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Return as soon as the condition holds; fail if it does not hold before the timeout."""
    waiting.wait_for(condition, timeout_s, every_s=0.2)
