"""Cuts a day into pieces of six hours, so that a run derives the end of a day and not all of it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Final, NamedTuple, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import PIECE_HOURS, piece_of
from karrot.pipeline.store.table_files import Tables, digest

HOUR: Final = timedelta(hours=1)
DAY_HOURS: Final = 24


class Pieces(NamedTuple):
    """Consecutive pieces of a day: from the hour ``begins`` until before the hour ``ends``. ``is_one``: in one file."""

    day: date
    begins: int = 0
    ends: int = DAY_HOURS
    is_one: bool = False

    @classmethod
    def of(cls, day: date, begins: int, running: date | None) -> Self:
        """Make the last pieces of a day. A whole day becomes one file, but not the ``running`` one."""
        return cls(day, begins, is_one=not begins and day != running)

    @property
    def since(self) -> datetime:
        return datetime.combine(self.day, time(), UTC) + self.begins * HOUR

    @property
    def until(self) -> datetime:
        return datetime.combine(self.day, time(), UTC) + self.ends * HOUR


def is_in(pieces: Iterable[Pieces], at: str, margin: timedelta = timedelta(0)) -> Column:
    """Whether a timestamp lies in one of these pieces, or at most ``margin`` before or after it."""
    column = F.col(at)
    return reduce(
        or_, ((column >= F.lit(each.since - margin)) & (column < F.lit(each.until + margin)) for each in pieces)
    )


def replace_pieces(tables: Tables, rows: DataFrame, table: str, pieces: Collection[Pieces]) -> None:
    """Replace pieces of a table by ``rows``, which have the column ``piece`` or ``minute``."""
    chosen = {(each.day, hour) for each in pieces for hour in range(each.begins, each.ends, PIECE_HOURS)}
    hour = F.col("piece") if "piece" in rows.columns else piece_of("minute")
    is_one = F.col("day").isin([each.day for each in pieces if each.is_one])
    placed = rows.withColumn("piece", F.when(is_one, 0).otherwise(hour))
    tables.replace_days(placed, table, {day for day, _ in chosen}, pieces=chosen)


def piece_digests(
    day: date, files: Iterable[str], first_ms: Mapping[tuple[date, str], int], margin: timedelta
) -> dict[int, str]:
    """Return a digest for each piece of a day, by its first hour: of the files on which the piece depends.

    ``files`` are all files of events and partitions of the day. ``first_ms`` is the time of the first row of a day in a
    batch, which is given as ``table/batch_id``. The rows of a piece depend on events until ``margin`` after its end.
    """
    pieces = (Pieces(day, hour, hour + PIECE_HOURS) for hour in range(0, DAY_HOURS, PIECE_HOURS))
    ends_ms = {piece.begins: int((piece.until + margin).timestamp() * 1000) for piece in pieces}
    begins_ms = {file: first_ms.get((day, _batch_of(file)), 0) for file in files}
    return {
        hour: digest(file for file, at_ms in begins_ms.items() if at_ms < end_ms) for hour, end_ms in ends_ms.items()
    }


def _batch_of(file: str) -> str:
    """Return ``table/batch_id`` from a path such as ``events/batch_id=run-1.6f3a/day=2026-11-20/part-….parquet``."""
    table, folder, *_ = file.split("/")
    return f"{table}/{folder.removeprefix('batch_id=').partition('.')[0]}"
