"""Makes the tables ``events`` and ``partitions`` from lines, without events that are stored already.

Lines that cannot be read become rows of ``quarantine``.

The archive and ingest both deliver at least once, so lines can repeat. Usually no line repeats, and a cheap check
proves this: each segment has consecutive sequence numbers of one log, and no two segments overlap. If this check fails,
all events are compared with each other.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from karrot.pipeline.schemas_and_conversions import (
    CORRUPT,
    EVENTS,
    GROUP,
    LINE,
    LONG,
    PARTITION_LINE,
    PARTITIONS,
    QUARANTINE,
    RAW_BYTES,
    STRING,
    base64,
    columns_of,
    possible_timestamp,
    struct,
    whole,
    with_day,
)

_MOST_BYTES: Final = 32 * 1024 * 1024
"""The longest line that is parsed. A body has at most 8 MiB. A line has the body twice, once as a longer string."""

_BURROW_BEGAN_MS: Final = 1_420_070_400_000  # 2015-01-01: an earlier time comes from a clock that was never set
_DAY_MS: Final = 86_400_000
_VERSION: Final = 1
_ID: Final = ("log_id", "seq")
REQUIRED: Final = ("v", "event_id", *_ID, "received_at_ms", "observed_at_ms", *GROUP, "status")
"""The fields that every line must have."""
# The body is not read, because the other fields of the line have its content. From the worst partition, only fields
# with a column are read.
_OF_WORST: Final = ("topic", "partition", "owner", "start_offset", "start_lag", "end_offset")
_WORST: Final = StructType([PARTITION_LINE[name] for name in _OF_WORST])
_FIELDS: Final = {field.name: field.dataType for field in LINE if field.name != "body"}
_READ: Final = struct(**_FIELDS | {"max_partition": _WORST, CORRUPT: STRING})
FIRST_LINES: Final = struct(source=STRING, path=STRING, first=LONG)
"""A segment, its path as Spark writes it, and the number of its first line."""


def read_lines(lines: DataFrame) -> DataFrame:
    """Parse the lines of an `EventSource`: ``value``, ``path``, ``offset`` and ``written_at``.

    The rows have ``path``, ``offset`` and ``day``, ``line`` as a struct, and ``number``, which counts the lines of a
    segment. If a line cannot be used, ``reason`` says why, and ``raw`` is the line's first 64 KiB in base64. Otherwise
    both are NULL.

    The reason is ``impossible_time`` if a line was received before 2015, or more than a day after its segment was
    written. Retention would delete the day of such a line at once, or never.
    """
    read = lines.withColumn("number", F.monotonically_increasing_id()).withColumn("line", parsed(_READ))
    judged = read.withColumn("reason", why_unusable())
    is_good = F.col("reason").isNull()
    received_at_ms = F.when(is_good, F.col("line.received_at_ms"))
    # Cut the string before the cast: the cast copies it, and a huge line would fill the heap.
    cut = F.substring("value", 1, RAW_BYTES)
    return judged.select(
        "path",
        "offset",
        "number",
        F.to_date(F.coalesce(possible_timestamp(received_at_ms), F.col("written_at"))).alias("day"),
        F.when(is_good, F.col("line")).alias("line"),
        "reason",
        F.when(~is_good, base64(F.substring(cut.cast("binary"), 1, RAW_BYTES))).alias("raw"),
    )


def events(lines: DataFrame) -> DataFrame:
    """Make the table ``events``, with its day: one row per good line."""
    read = lines.where(F.col("reason").isNull()).select("line.*", "day")
    worst = F.col("max_partition")
    first_end = F.try_add(worst["start_offset"], whole(worst["start_lag"]))
    made = {
        **_times("received_at", "observed_at", "incident_start"),
        **_counts("total_lag", "max_lag", "scalable_lag"),
        **{f"max_lag_{name}": worst[name] for name in ("topic", "partition", "owner")},
    }
    return read.withColumns({**made, "max_lag_committed": worst["end_offset"], "max_lag_first_end": first_end}).select(
        *columns_of(with_day(EVENTS))
    )


def partitions(lines: DataFrame) -> DataFrame:
    """Make the table ``partitions``, with its day: one row per partition that a good line lists."""
    of_event = ("event_id", "log_id", "seq", "source", *GROUP, "received_at_ms", "observed_at_ms")
    listed = lines.where(F.col("reason").isNull()).select(
        "day", *(F.col("line")[name].alias(name) for name in of_event), F.explode("line.partitions").alias("one")
    )
    made = {
        **_times("received_at", "observed_at", "start_ts", "end_ts"),
        **_counts("start_lag", "end_lag", "current_lag"),
    }
    return listed.select("*", "one.*").withColumns(made).select(*columns_of(with_day(PARTITIONS)))


def _times(*names: str) -> dict[str, Column]:
    return {name: possible_timestamp(F.col(f"{name}_ms")) for name in names}


def _counts(*names: str) -> dict[str, Column]:
    return {name: whole(F.col(name)) for name in names}


def parsed(schema: StructType) -> Column:
    """Parse the column ``value`` as JSON of a schema with `CORRUPT`; NULL if the line is too long.

    By default, Spark also reads ``NaN`` and ``Infinity``, which JSON does not have.
    """
    options = {"columnNameOfCorruptRecord": CORRUPT, "allowNonNumericNumbers": "false"}
    return F.from_json(F.when(_is_short_enough(), F.col("value")), schema, options)


def why_unusable() -> Column:
    """The reason why a line cannot be used; NULL if the line can be used.

    The version is checked before the fields, because another version may have other fields. The expression uses the
    columns ``value``, ``line`` (`parsed`, with the `REQUIRED` fields) and ``written_at``.
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
    log_id: str
    first: int
    last: int


def in_order() -> Column:
    """Make an aggregate over a log's good lines: whether the numbers are consecutive, so that no line repeats."""
    number, seq = F.col("number"), F.col("line.seq")
    ahead = F.try_subtract(number, seq)  # NULL only if seq is negative; aggregates ignore NULL
    return (F.min(ahead) == F.max(ahead)) & (F.min(seq) >= 0)


def stored_ranges(known: DataFrame) -> list[SequenceRange]:
    """Make one range for each log in ``known`` (rows of the table ``events``)."""
    found = known.groupBy("log_id").agg(F.min("seq"), F.max("seq")).collect()
    return [SequenceRange(*row) for row in found]


def overlap(several: Iterable[SequenceRange]) -> bool:
    """Whether two ranges of one log can share a number."""
    return any(one.log_id == other.log_id and other.first <= one.last for one, other in pairwise(sorted(several)))


def repeated_lines(lines: DataFrame, known: DataFrame) -> DataFrame:
    """Return the ``number`` of each good line whose event came earlier in the batch, or is in ``known``.

    ``known`` are rows of the table ``events``. Two events are the same if log id and sequence number are equal.
    """
    arrived = lines.where(F.col("reason").isNull()).select("line.log_id", "line.seq", "number")
    stored = known.select(*_ID, F.lit(-1).cast("bigint").alias("number"))
    met = arrived.unionByName(stored).groupBy(*_ID).agg(F.min("number").alias("kept"), F.count("*").alias("times"))
    several = met.where(F.col("times") > 1).drop("times")
    return arrived.join(several, on=list(_ID), how="inner").where(F.col("number") > F.col("kept")).select("number")


def bad_lines(lines: DataFrame, segments: DataFrame) -> DataFrame:
    """Make rows of ``quarantine`` from the lines with a reason. ``segments`` have the schema `FIRST_LINES`."""
    return (
        lines.where(F.col("reason").isNotNull())
        .join(F.broadcast(segments), on="path", how="inner")
        .withColumn("position", F.coalesce("offset", F.col("number") - F.col("first") + F.lit(1)))
        .withColumn("missing", F.lit(None).cast("bigint"))
        .select(*columns_of(with_day(QUARANTINE)))
    )
