"""Waiting with the patience that servers need on a machine that is busy with them."""

from collections.abc import Callable

from support import waiting

__all__ = ["wait_for"]


def wait_for(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    waiting.wait_for(condition, timeout_s)
