"""Parses moments and step lengths as users write them, and converts moments to milliseconds and back."""

import re
from datetime import UTC, datetime, timedelta

from karrot.event import TimeRange
from karrot.settings import types
from karrot.text import EPOCH

MINUTE = timedelta(minutes=1)
IN_SPAN = "epoch_ms(minute) >= $start AND epoch_ms(minute) < $end"
"""An SQL condition for the minutes of a time range. `bounds` makes its parameters."""
_MS = timedelta(milliseconds=1)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""The earliest moment that users may write.

It is late enough to subtract a time from it in code, and earlier than the longest relative time, a century ago.
"""
_LONGEST_SECONDS = 100 * 366 * 86_400
_RELATIVE = re.compile(r"(?:now-)?([0-9.]+ ?[A-Za-z]+)", re.ASCII)
_STEP = types.duration(60, 366 * 86_400)
_AGO = types.duration(0, _LONGEST_SECONDS)


def bounds(span: TimeRange) -> dict[str, object]:
    """The query parameters ``start`` and ``end`` of a time range, in milliseconds since 1970."""
    return {"start": epoch_ms(span.start), "end": epoch_ms(span.end)}


def moment_of(epoch_ms: int) -> datetime:
    return EPOCH + epoch_ms * _MS


def epoch_ms(moment: datetime) -> int:
    return (moment - EPOCH) // _MS


def moment(text: str, now: datetime) -> datetime:
    """Parse ``now``, ``24h``, ``now-24h``, or ISO 8601 (UTC by default). Raises `ValueError` for the user."""
    if text == "now":
        return now
    if ago := _RELATIVE.fullmatch(text):
        return now - timedelta(seconds=types.checked(_AGO, "the time before now", ago[1]))
    try:
        read = datetime.fromisoformat(text)
        read = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        read = datetime.min.replace(tzinfo=UTC)
    if read < _EARLIEST:
        raise ValueError(
            f"{types.quoted(text)} is not a time: write 2026-11-20, 2026-11-20T09:30 (not before 1900), "
            "24h (ago), 7d or now"
        )
    return read


def granularity(text: str) -> timedelta:
    """Parse the length of a step: whole minutes, such as ``1m``, ``5m``, ``1h`` or ``1d``. Raises `ValueError`."""
    step = timedelta(seconds=types.checked(_STEP, "--granularity", text))
    if step % MINUTE:
        raise ValueError(f"--granularity is {types.quoted(text)}: it must be whole minutes")
    return step
