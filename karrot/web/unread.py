"""Reads what the event log keeps only on disk, for answers that are useful without it."""

from collections.abc import Callable
from typing import TypeVar

from karrot.eventlog.base import LogUnavailableError

T = TypeVar("T")
D = TypeVar("D")


def if_readable(read: Callable[[], T], otherwise: D) -> T | D:
    """The result of ``read``, or ``otherwise`` while the event log cannot be read."""
    try:
        return read()
    except LogUnavailableError:
        return otherwise
