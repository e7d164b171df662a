"""Tells which days the tables hold: "nothing happened" on a day differs from "nothing is known" of it.

``karrot pipeline derive`` finds the incidents of all days last. It then notes the days that it finished in
``_derived.json``. A day of ``verdict_runs`` that the note lacks may have incidents that no table has yet. Before it
replaces a day, it takes the day out of the note's finished days.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import msgspec

from karrot.event import DayRange, TimeRange
from karrot.history.results import UnreadableTable

NOTE = "_derived.json"
"""The name of the note, in the directory of the tables."""
_DAY = timedelta(days=1)


class Derived(msgspec.Struct, frozen=True):
    """A day as it was derived: a digest of its files, and its looks at partitions next to each midnight.

    ``mark`` tells what the day hands on to the next: the commits and the looks that its lags begin with.
    """

    files: str
    head: int = 0
    tail: int = 0
    mark: str = ""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What derive did, by day. ``rules`` is what the whole history was derived by.

    ``unfinished`` are the days that a run began and did not finish, each as it was before that run.
    """

    rules: str = ""
    days: dict[date, Derived] = {}
    unfinished: dict[date, Derived] = {}


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a question: those that the tables hold, and those that they do not."""

    held: tuple[DayRange, ...]
    missing: tuple[DayRange, ...]


def day_of(entry: str) -> date | None:
    """The day that a directory of a table, ``day=2026-11-20``, is named for; ``None`` for any other name."""
    try:
        return date.fromisoformat(entry.removeprefix("day=")) if entry.startswith("day=") else None
    except ValueError:
        return None


def asked_days(span: TimeRange, held: Collection[date]) -> Days:
    """The days of a span, by the days that the tables hold."""
    asked, kept = span.days.dates, frozenset(held)
    return Days(
        tuple(day_ranges(day for day in asked if day in kept)),
        tuple(day_ranges(day for day in asked if day not in kept)),
    )


def day_ranges(days: Iterable[date]) -> Iterator[DayRange]:
    """Days in their order as ranges without a gap."""
    first = last = None
    for day in days:
        if first is not None and last is not None and day - last > _DAY:
            yield DayRange(first, last)
            first = day
        first, last = first or day, day
    if first is not None and last is not None:
        yield DayRange(first, last)


def finished(tables: Path) -> frozenset[date]:
    """The days that derive noted as finished; none if there is no note or it is damaged: derive then does them again.

    Raises `UnreadableTable` where the note may not be read.
    """
    try:
        return frozenset(note_of((tables / NOTE).read_bytes()).days)
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise UnreadableTable(f"{tables / NOTE} cannot be read ({error.strerror}): let this user read it") from error


def note_of(text: bytes) -> Note:
    """The note that a file holds; an empty one, with which derive does every day again, if the file is damaged."""
    try:
        return msgspec.json.decode(text, type=Note)
    except (msgspec.DecodeError, RecursionError):
        return Note()
