"""Events that are there already: the archive and a second run of ingest are both at least once.

Mostly they are not, and then it shows at little cost: a segment holds the numbers of its log one after the other, and
no other has the same. Only where that is not so every event is compared with every other.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_ID = ("log_id", "seq")


class SequenceRange(NamedTuple):
    """The first and the last of a log's numbers that are in one place."""

    log_id: str
    first: int
    last: int


def in_order() -> Column:
    """An aggregate over good lines of a log: whether they are numbered as their events are, so that none repeats."""
    number, seq = F.col("number"), F.col("line.seq")
    ahead = F.try_subtract(number, seq)  # NULL, which an aggregate passes by, only where the event's is negative
    return (F.min(ahead) == F.max(ahead)) & (F.min(seq) >= 0)


def spans(known: DataFrame) -> list[SequenceRange]:
    """One for each log that ``known`` (the table ``events``) has something of."""
    found = known.groupBy("log_id").agg(F.min("seq"), F.max("seq")).collect()
    return [SequenceRange(*row) for row in found]


def overlap(several: Iterable[SequenceRange]) -> bool:
    """Whether two of them may share a number."""
    return any(one.log_id == other.log_id and other.first <= one.last for one, other in pairwise(sorted(several)))


def repeats(lines: DataFrame, known: DataFrame) -> DataFrame:
    """The ``number`` of each good line whose event came before: earlier in the batch, or in ``known``.

    An event's id is its log's id and its number in that log; ``known`` has both (the table ``events``).
    """
    arrived = lines.where(F.col("reason").isNull()).select("line.log_id", "line.seq", "number")
    stored = known.select(*_ID, F.lit(-1).cast("bigint").alias("number"))
    met = arrived.unionByName(stored).groupBy(*_ID).agg(F.min("number").alias("kept"), F.count("*").alias("times"))
    several = met.where(F.col("times") > 1).drop("times")
    return arrived.join(several, on=list(_ID), how="inner").where(F.col("number") > F.col("kept")).select("number")


def without(lines: DataFrame, numbers: DataFrame) -> DataFrame:
    """The lines but for those with these numbers."""
    return lines.join(numbers, on="number", how="left_anti")
