"""Makes the tables ``events`` and ``partitions`` of lines, without events that are stored already.

Lines that cannot be read become rows of ``quarantine``.

Both the archive and a second run of ingest are at least once. Mostly nothing repeats, and then that shows at little
cost: a segment holds the numbers of its log one after the other, and no other segment has the same. Only where that is
not so is every event compared with every other.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from karrot.pipeline.schemas import (
    CORRUPT,
    EVENTS,
    LINE,
    PARTITION_LINE,
    PARTITIONS,
    QUARANTINE,
    RAW_BYTES,
    columns_of,
    with_day,
)
from karrot.pipeline.schemas.table_schemas import struct
from karrot.pipeline.store.shared_columns import moment, whole

_MOST_BYTES: Final = 32 * 1024 * 1024
"""The longest line that is read as JSON. A body has at most 8 MiB, grows as a string in JSON, and is said twice."""

_BURROW_BEGAN_MS: Final = 1_420_070_400_000  # 2015-01-01: what was received before has a clock that was never set
_DAY_MS: Final = 86_400_000
_VERSION: Final = 1
_ID: Final = ("log_id", "seq")
REQUIRED: Final = (
    "v",
    "event_id",
    "log_id",
    "seq",
    "received_at_ms",
    "observed_at_ms",
    "cluster",
    "consumer",
    "status",
)
"""The fields that no line may lack."""
# Not the body, which the rest of the line says again field by field; of the worst partition only what a table has.
_OF_WORST: Final = ("topic", "partition", "owner", "start_offset", "start_lag", "end_offset")
_WORST: Final = StructType([PARTITION_LINE[name] for name in _OF_WORST])
_FIELDS: Final = {field.name: field.dataType for field in LINE if field.name != "body"}
_READ: Final = struct(**_FIELDS | {"max_partition": _WORST, CORRUPT: StringType()})
FIRST_LINES: Final = StructType().add("source", StringType()).add("path", StringType()).add("first", LongType())
"""A segment, how Spark spells its path, and the number of its first line."""


def read_lines(lines: DataFrame) -> DataFrame:
    """Read ``value`` (a line), ``path`` (its segment or partition), ``offset`` (its place, if known), ``written_at``.

    Gives ``path`` and ``offset``; ``number``, which counts along a segment; ``day``; ``line`` as a struct; and where a
    line is none of ours the ``reason`` (else NULL) and ``raw``, the line in base64 (its first 64 KiB).

    A receipt before there was a Burrow, or more than a day after the segment was written, is no time: retention would
    drop its day at once, or never.
    """
    read = lines.withColumn("number", F.monotonically_increasing_id()).withColumn("line", parsed(_READ))
    judged = read.withColumn("reason", why_unusable())
    is_good = F.col("reason").isNull()
    received_at_ms = F.when(is_good, F.col("line.received_at_ms"))
    # Cut as characters first, because the cast copies: a huge line would fill the heap.
    cut = F.substring("value", 1, RAW_BYTES)
    return judged.select(
        "path",
        "offset",
        "number",
        F.to_date(F.coalesce(moment(received_at_ms), F.col("written_at"))).alias("day"),
        F.when(is_good, F.col("line")).alias("line"),
        "reason",
        F.when(~is_good, F.base64(F.substring(cut.cast("binary"), 1, RAW_BYTES))).alias("raw"),
    )


def events(lines: DataFrame) -> DataFrame:
    """One row per good line, and its day."""
    max_partition = F.col("max_partition")
    read = lines.where(F.col("reason").isNull()).select("line.*", "day")
    return read.withColumns(
        {
            "received_at": moment(F.col("received_at_ms")),
            "observed_at": moment(F.col("observed_at_ms")),
            "incident_start": moment(F.col("incident_start_ms")),
            "total_lag": whole(F.col("total_lag")),
            "max_lag": whole(F.col("max_lag")),
            "scalable_lag": whole(F.col("scalable_lag")),
            "max_lag_topic": max_partition["topic"],
            "max_lag_partition": max_partition["partition"],
            "max_lag_owner": max_partition["owner"],
            "max_lag_committed": max_partition["end_offset"],
            "max_lag_first_end": F.try_add(max_partition["start_offset"], whole(max_partition["start_lag"])),
        }
    ).select(*columns_of(with_day(EVENTS)))


def partitions(lines: DataFrame) -> DataFrame:
    """One row per partition that a good line lists, and the day of the line."""
    listed = lines.where(F.col("reason").isNull()).select(
        "day",
        *(F.col("line")[name].alias(name) for name in ("event_id", "log_id", "seq", "source", "cluster", "consumer")),
        moment(F.col("line.received_at_ms")).alias("received_at"),
        moment(F.col("line.observed_at_ms")).alias("observed_at"),
        F.explode("line.partitions").alias("one"),
    )
    return (
        listed.select("*", "one.*")
        .withColumns(
            {
                "start_ts": moment(F.col("start_ts_ms")),
                "start_lag": whole(F.col("start_lag")),
                "end_ts": moment(F.col("end_ts_ms")),
                "end_lag": whole(F.col("end_lag")),
                "current_lag": whole(F.col("current_lag")),
            }
        )
        .select(*columns_of(with_day(PARTITIONS)))
    )


def parsed(schema: StructType) -> Column:
    """The column ``value``, a line, read as JSON of a schema with `CORRUPT`; NULL where it is too long for that."""
    return F.from_json(F.when(_is_short_enough(), F.col("value")), schema, {"columnNameOfCorruptRecord": CORRUPT})


def why_unusable() -> Column:
    """Why a line is not one of ours, NULL if it is. The version comes first: another may use other keys.

    Looks at the columns ``value``, ``line`` (`parsed`, with the `REQUIRED` fields) and ``written_at``.
    """
    line = F.col("line")
    received_at_ms, written_ms = line["received_at_ms"], F.unix_millis("written_at")
    lacks_a_field = F.greatest(*(line[name].isNull() for name in REQUIRED))
    has_no_time = (received_at_ms < _BURROW_BEGAN_MS) | (received_at_ms > written_ms + _DAY_MS)
    return (
        F.when(~_is_short_enough(), "too_long")
        .when(line["v"] != _VERSION, "unknown_version")
        .when(line.isNull() | line[CORRUPT].isNotNull(), "unreadable")
        .when(lacks_a_field, "missing_field")
        .when(has_no_time, "impossible_time")
    )


def _is_short_enough() -> Column:
    return F.octet_length("value") <= _MOST_BYTES


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


def stored_ranges(known: DataFrame) -> list[SequenceRange]:
    """One for each log that ``known`` (the table ``events``) has something of."""
    found = known.groupBy("log_id").agg(F.min("seq"), F.max("seq")).collect()
    return [SequenceRange(*row) for row in found]


def overlap(several: Iterable[SequenceRange]) -> bool:
    """Whether two of them may share a number."""
    return any(one.log_id == other.log_id and other.first <= one.last for one, other in pairwise(sorted(several)))


def repeated_lines(lines: DataFrame, known: DataFrame) -> DataFrame:
    """The ``number`` of each good line whose event came before: earlier in the batch, or in ``known``.

    An event's id is its log's id and its number in that log; ``known`` has both (the table ``events``).
    """
    arrived = lines.where(F.col("reason").isNull()).select("line.log_id", "line.seq", "number")
    stored = known.select(*_ID, F.lit(-1).cast("bigint").alias("number"))
    met = arrived.unionByName(stored).groupBy(*_ID).agg(F.min("number").alias("kept"), F.count("*").alias("times"))
    several = met.where(F.col("times") > 1).drop("times")
    return arrived.join(several, on=list(_ID), how="inner").where(F.col("number") > F.col("kept")).select("number")


def without_lines(lines: DataFrame, numbers: DataFrame) -> DataFrame:
    """The lines but for those with these numbers."""
    return lines.join(numbers, on="number", how="left_anti")


def bad_lines(lines: DataFrame, segments: DataFrame) -> DataFrame:
    """The lines that have a reason. ``segments`` are of the schema `FIRST_LINES`."""
    return (
        lines.where(F.col("reason").isNotNull())
        .join(F.broadcast(segments), on="path", how="inner")
        .withColumns(
            {
                "position": F.coalesce("offset", F.col("number") - F.col("first") + F.lit(1)),
                "missing": F.lit(None).cast("bigint"),
            }
        )
        .select(*columns_of(with_day(QUARANTINE)))
    )
