"""Defines time ranges, parses times and step lengths as users write them, and converts times to milliseconds."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from karrot.settings import types
from karrot.text import EPOCH

MINUTE = timedelta(minutes=1)
IN_SPAN = "epoch_ms(minute) >= $start AND epoch_ms(minute) < $end"
"""An SQL condition for the minutes of a time range. `bounds` makes its parameters."""
_MS = timedelta(milliseconds=1)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""The earliest time that users may write.

Code can subtract a duration from this time. This time is earlier than the longest relative time, a century ago.
"""
_LONGEST_SECONDS = 100 * 366 * 86_400
_RELATIVE = re.compile(r"(?:now-)?([0-9.]+ ?[A-Za-z]+)", re.ASCII)
_STEP = types.duration(60, 366 * 86_400)
_AGO = types.duration(0, _LONGEST_SECONDS)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time from ``start`` up to, but not including, ``end``. Raises `ValueError` if ``end`` is not later."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            times = f"{self.start:%Y-%m-%d %H:%M:%S} to {self.end:%Y-%m-%d %H:%M:%S}"
            raise ValueError(f"the time range {times} is empty: its end must be after its start")

    @property
    def days(self) -> "DayRange":
        """The UTC days that overlap with the range."""
        last = self.end.astimezone(UTC) - timedelta(microseconds=1)
        return DayRange(self.start.astimezone(UTC).date(), last.date())


class DayRange(NamedTuple):
    """Consecutive whole UTC days, from the first to the last day inclusive."""

    first: date
    last: date

    @property
    def length(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def dates(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range(self.length)]

    def has(self, day: date) -> bool:
        return self.first <= day <= self.last

    @property
    def start_s(self) -> int:
        """The midnight at which the range starts, in seconds since 1970."""
        return _midnight_s(self.first)

    @property
    def end_s(self) -> int:
        """The midnight at which the range ends, in seconds since 1970."""
        return _midnight_s(self.last + timedelta(days=1))

    @property
    def before(self) -> "DayRange":
        """The range of the same length that ends on the day before this range."""
        return DayRange(self.first - timedelta(days=self.length), self.first - timedelta(days=1))


def day_ranges(days: Iterable[date]) -> Iterator[DayRange]:
    """Join consecutive days, which must be in order, into ranges."""
    first = last = None
    for day in days:
        if first is not None and last is not None and day - last > timedelta(days=1):
            yield DayRange(first, last)
            first = day
        first, last = first or day, day
    if first is not None and last is not None:
        yield DayRange(first, last)


def _midnight_s(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())


def bounds(span: TimeRange) -> dict[str, object]:
    """The query parameters ``start`` and ``end`` of a time range, in milliseconds since 1970."""
    return {"start": epoch_ms(span.start), "end": epoch_ms(span.end)}


def moment_of(epoch_ms: int) -> datetime:
    return EPOCH + epoch_ms * _MS


def epoch_ms(when: datetime) -> int:
    return (when - EPOCH) // _MS


def parse_time(text: str, now: datetime) -> datetime:
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
