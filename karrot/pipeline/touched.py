"""Which days changed since they were last derived: a note beside the tables, ``_derived.json``.

Every write of Spark's names its files anew, so the names of a day's files tell whether anything was added, written
again or removed. The note holds a digest of them, and the rules that the day was derived by: other rules, other rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import date

import msgspec
from pyspark.sql import SparkSession

from karrot.pipeline.files import read_text, write_text
from karrot.pipeline.tables import Tables, day_of, sound

__all__ = ["SOURCES", "WATCHED", "Derived", "Note", "digest", "present", "read_note", "touched", "write_note"]

SOURCES = ("events", "partitions")
"""The tables that events make."""
WATCHED = (*SOURCES, "commits", "members", "ends")
"""The tables that others are derived from."""
_NAME = "_derived.json"


class Derived(msgspec.Struct, frozen=True):
    """A day as it was derived: a digest of its files, and its looks at partitions next to each midnight.

    ``mark`` tells what the day hands on to the next: the commits and the looks that its lags begin with.
    """

    files: str
    head: int = 0
    tail: int = 0
    mark: str = ""


class Note(msgspec.Struct, frozen=True):
    """What derive did, by day. ``rules`` is what the whole history was derived by."""

    rules: str = ""
    days: dict[date, Derived] = {}


def read_note(spark: SparkSession, tables: Tables) -> Note:
    """The note; an empty one, with which everything is derived, if there is none or it is damaged."""
    text = read_text(spark, tables.path(_NAME))
    try:
        return Note() if text is None else msgspec.json.decode(text, type=Note)
    except msgspec.DecodeError:
        return Note()


def write_note(spark: SparkSession, tables: Tables, note: Note) -> None:
    """Replace the note."""
    write_text(
        spark, tables.path(_NAME), msgspec.json.encode(Note(note.rules, dict(sorted(note.days.items())))).decode()
    )


def present(spark: SparkSession, tables: Tables) -> dict[date, str]:
    """The days that any of the `WATCHED` tables has, each with the `digest` of its files. Raises as `sound` does."""
    files: dict[date, list[str]] = {}
    for name in WATCHED:
        for path in sound(tables.read(spark, name)).inputFiles():
            below = path.rpartition(f"/{name}/day=")[2]
            if (day := day_of(f"day={below.partition('/')[0]}")) is not None:
                files.setdefault(day, []).append(f"{name}/{below}")
    return {day: digest(names) for day, names in files.items()}


def digest(names: Iterable[str]) -> str:
    """A short name for a set of files, each ``table/YYYY-MM-DD/…``."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def touched(note: Note, found: Mapping[date, str], rules: str) -> list[date]:
    """The days to derive, in order; a day whose files are gone is one of them."""
    if note.rules != rules:
        return sorted({*found, *note.days})
    known = {day: derived.files for day, derived in note.days.items()}
    return sorted(day for day in {*found, *known} if found.get(day) != known.get(day))
