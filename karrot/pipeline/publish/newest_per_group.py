"""The lines that CloudWatch needs of a batch: the newest of each group, and what that one leaves unsaid."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from karrot.event import Source
from karrot.pipeline.ingest.events import REQUIRED, parsed, why_unusable
from karrot.pipeline.schemas import CORRUPT, LINE, columns_of
from karrot.pipeline.store.shared_columns import GROUP

_PLACE: Final = StructType(
    [StructField("received_at_ms", LongType()), StructField("log_id", StringType()), StructField("seq", LongType())]
)
NEWEST: Final = StructType(
    [StructField("first", _PLACE), StructField("place", _PLACE), StructField("line", StringType())]
)
"""A line, its place in the archive, and the place of the first fresh line of its group.

Sorted by ``first`` and ``place`` a group comes as early as it was heard of: places under a cap are given in this order.
"""

_BURROW_TOPIC: Final = "__consumer_offsets"  # a group that reads it may be Burrow itself, which has no metrics
_VALUES: Final = ("total_lag", "max_lag", "scalable_lag", "lag_seconds")
_ASKED: Final = (*REQUIRED, "source", "kind", "complete", "max_partition", *_VALUES)
# As texts: whether a lag is known is all that is asked here, and Burrow's are wider than any type of Spark's.
_READ: Final = StructType(
    [StructField(name, StringType() if name in _VALUES else LINE[name].dataType) for name in _ASKED]
).add(CORRUPT, StringType())


def newest(lines: DataFrame, *, now_ms: int, oldest_ms: int, min_complete: float) -> DataFrame:
    """`NEWEST` of ``value`` (a line), ``path`` and ``written_at``, as ingest reads them; what it would refuse is none.

    Age is told by the clock of the log: by receipt, less what lay between observation and receipt. What is older than
    ``oldest_ms`` is left out, and nothing is newer than ``now_ms``. One line a group would hide what an earlier one
    said: a verdict whose lag is not known says nothing about the lag, and only a webhook is a heartbeat. So lines that
    say different things are told apart, and the newest of each kind is kept: of most groups one.
    """
    fresh = _with_age(_read(lines), now_ms).where(F.col("at_ms") >= oldest_ms)
    told = fresh.groupBy(*(F.col("line")[name].alias(name) for name in GROUP), _says(min_complete)).agg(
        F.min("place").alias("first"),
        F.max(F.struct("at_ms", "place", "value")).alias("newest"),
    )
    return (
        told.withColumn("first", F.min("first").over(Window.partitionBy(*GROUP)))
        .withColumns({"place": F.col("newest.place"), "line": F.col("newest.value")})
        .select(*columns_of(NEWEST))
    )


def _read(lines: DataFrame) -> DataFrame:
    return lines.withColumn("line", parsed(_READ)).where(why_unusable().isNull())


def _with_age(read: DataFrame, now_ms: int) -> DataFrame:
    received, observed = F.col("line.received_at_ms"), F.col("line.observed_at_ms")
    # A number that no clock shows overflows here: then the age is not known, and the line is left out.
    before_receipt = F.greatest(F.lit(0), F.try_subtract(received, observed))
    place = F.struct(*(F.col("line")[name].alias(name) for name in _PLACE.names))
    at_ms = F.try_subtract(F.least(received, F.lit(now_ms)), before_receipt)
    return read.where(observed > 0).withColumns({"at_ms": at_ms, "place": place})


def _says(min_complete: float) -> Column:
    """What a line can say: lines that are equal in this fill the same metrics."""
    line = F.col("line")
    return F.struct(
        line["kind"].alias("kind"),
        (line["source"] == Source.WEBHOOK.value).alias("is_heartbeat"),
        F.coalesce(line["complete"] < min_complete, F.lit(False)).alias("is_incomplete"),
        F.coalesce(line["max_partition"]["topic"] == _BURROW_TOPIC, F.lit(False)).alias("is_of_burrow"),
        *(line[name].isNotNull().alias(name) for name in _VALUES),
    ).alias("says")
