"""Waits for a condition on a machine that is busy with servers: patiently, and without keeping it busy."""

from collections.abc import Callable

from support import waiting


def wait_for(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    waiting.wait_for(condition, timeout_s, every_s=0.2)
