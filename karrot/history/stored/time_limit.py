"""Limits the time of all queries within a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import NamedTuple

from karrot.history.results import TooSlow


class _Limit(NamedTuple):
    seconds: float
    ends: float


_current: ContextVar[_Limit | None] = ContextVar("time limit of the history", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let the queries of this block, in this thread, take this long together. After that, they raise `TooSlow`."""
    token = _current.set(_Limit(seconds, monotonic() + seconds))
    try:
        yield
    finally:
        _current.reset(token)


def seconds_left() -> float | None:
    """The time that is left, at least zero; ``None`` without a limit."""
    limit = _current.get()
    return None if limit is None else max(0.0, limit.ends - monotonic())


def too_slow(place: object) -> TooSlow:
    """The error after the time limit."""
    limit = _current.get()
    within = "in time" if limit is None else f"within {limit.seconds:g} s"
    return TooSlow(f"{place} did not give the answer {within}")
