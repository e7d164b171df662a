"""Reads the note ``_derived.json``, in which ``derive`` says which versions of its tables belong together.

``derive`` commits its tables one after the other, and writes the note at the end. So a reader that uses the versions of
the note sees all tables of one run, and a day without incidents differs from a day without data.
"""

from datetime import date
from typing import Annotated

import msgspec

NOTE = "_derived.json"
"""The name of the note of derived days, in the directory of the tables."""


Version = Annotated[int, msgspec.Meta(ge=0, lt=10**8)]
"""A version of a table. deltalake looks for each number up to it, so a damaged one could take for ever."""


class Derived(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a day when it was derived. ``files`` is a digest of the names of its files.

    ``head`` and ``tail`` are the numbers of samples near its first and its last midnight. ``mark`` is a hash of the
    commits and samples with which the next day's lags begin. ``pieces`` has the digest of each piece, by its first
    hour: of the files on which the piece depends. It is empty if the whole day is one piece. ``sizes`` is a hash of the
    numbers of partitions of the topics that have lag from commits, if the day has no events.
    """

    files: str
    head: int = 0
    tail: int = 0
    mark: str = ""
    pieces: dict[int, str] = {}
    sizes: str = ""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of derived days. ``unfinished`` days have their state before the run that began to derive them.

    ``versions`` are the versions of the derived tables that belong together: those of the last run that ended.
    """

    rules: str = ""
    days: dict[date, Derived] = {}
    unfinished: dict[date, Derived] = {}
    versions: dict[str, Version] = {}


def day_of(entry: str) -> date | None:
    """Return the day in the name of a table's directory, such as ``day=2026-11-20``; ``None`` for any other name."""
    try:
        return date.fromisoformat(entry.removeprefix("day=")) if entry.startswith("day=") else None
    except ValueError:
        return None


def note_of(text: bytes) -> Note:
    """Parse the note. If it is damaged, return an empty note: the next ``derive`` then makes every day again."""
    try:
        return msgspec.json.decode(text, type=Note)
    except (msgspec.DecodeError, RecursionError):
        return Note()
