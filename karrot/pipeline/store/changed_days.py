"""Finds which days changed since derive last ran, by the note ``_derived.json`` next to the tables.

Spark gives its files new names with every write, so the names of a day's files tell whether anything was added, written
again or removed. The note holds a digest of them, and the rules that the day was derived by: other rules, other rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import date

import msgspec
from pyspark.sql import SparkSession

from karrot.history.held_days import NOTE, Note, note_of
from karrot.pipeline.store.filesystem import read_text, write_text
from karrot.pipeline.store.tables import Tables, day_of, sound

SOURCES = ("events", "partitions")
"""The tables that events make."""
WATCHED = (*SOURCES, "commits", "members", "ends")
"""The tables that others are derived from."""


def read_note(spark: SparkSession, tables: Tables) -> Note:
    """The note; an empty one, with which everything is derived, if there is none or it is damaged."""
    try:
        text = read_text(spark, tables.path(NOTE))
    except UnicodeDecodeError:
        return Note()
    return Note() if text is None else note_of(text.encode())


def write_note(spark: SparkSession, tables: Tables, note: Note) -> None:
    """Replace the note."""
    ordered = Note(note.rules, *(dict(sorted(days.items())) for days in (note.days, note.unfinished)))
    write_text(spark, tables.path(NOTE), msgspec.json.encode(ordered).decode())


def days_present(spark: SparkSession, tables: Tables) -> dict[date, str]:
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


def changed_days(note: Note, found: Mapping[date, str], rules: str) -> list[date]:
    """The days to derive, in order; a day whose files are gone is one of them, and one that was not finished."""
    if note.rules != rules:
        return sorted({*found, *note.days, *note.unfinished})
    known = {day: derived.files for day, derived in note.days.items()}
    differing = {day for day in {*found, *known} if found.get(day) != known.get(day)}
    return sorted(differing | note.unfinished.keys())
