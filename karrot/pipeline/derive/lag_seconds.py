"""Computes lag in seconds by hindsight: how long ago the log ended where the group's committed offset is.

A verdict knows the log end of the last minutes. For a group that is further behind it extrapolates: it says how long
the lag would take to come in at the rate of those minutes. That is hours too much once the producer of a nightly batch
is done. The history knows from other verdicts, and from polls, when the log ended at that offset.
"""

from datetime import timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.derive.log_end_samples import log_end_samples, sample_spans
from karrot.pipeline.store.shared_columns import LOG, rounded

_LOG_OF_DAY: Final = (*LOG, "day")
"""A log on a day alone, so that no day has to be derived again for what another one saw."""

_LAST: Final = 2**63 - 1
_LOOK: Final = ("life", "at_ms", "end_offset", "next_ms", "next_offset")


class AsOf(NamedTuple):
    """Which look at a log a row is given, as ``name``: the last one ``looked`` at not beyond what is ``asked``."""

    name: str
    within: tuple[str, ...]
    looked: str
    asked: str


def with_log_end(rows: DataFrame, ends: DataFrame, by: AsOf) -> DataFrame:
    """Add to each row the last of the looks at its log whose place is not beyond the row's; of equal ones the latest.

    ``ends`` are the spans of `karrot.pipeline.derive.log_end_samples`. An as-of join: the union, and in it the last
    look that is not NULL.
    """
    look, row = F.struct(*_LOOK), F.struct(*rows.columns)
    told = ends.select(*by.within, F.col(by.looked).alias("place"), F.col("at_ms").alias("tie"), look.alias("look"))
    asking = rows.select(*by.within, F.col(by.asked).alias("place"), F.lit(_LAST).alias("tie"), row.alias("row"))
    order = Window.partitionBy(*by.within).orderBy("place", "tie").rowsBetween(Window.unboundedPreceding, 0)
    return (
        told.unionByName(asking, allowMissingColumns=True)
        .withColumn(by.name, F.last("look", ignorenulls=True).over(order))
        .where(F.col("row").isNotNull())
        .select("row.*", by.name)
    )


def seconds_behind() -> Column:
    """How long before ``at_ms`` the log ended at ``committed_offset``; NULL unless looks on both sides tell.

    Of rows with their ``lag`` and the look at which the log had ``crossed`` that offset.
    """
    crossed, committed = F.col("crossed"), F.col("committed_offset")
    since, grown = (F.try_subtract(each, crossed.end_offset) for each in (committed, crossed.next_offset))
    share = F.try_divide(since, grown)
    ended_ms = crossed.at_ms + share * (crossed.next_ms - crossed.at_ms)
    seconds = rounded((F.col("at_ms") - ended_ms) / 1000, 3)
    return F.when(F.col("lag") == 0, 0.0).when(seconds > 0, seconds).when(seconds <= 0, 0.0)


_NEAREST: Final = AsOf("look", _LOG_OF_DAY, "at_ms", "at_ms")
_CROSSED: Final = AsOf("crossed", (*_LOG_OF_DAY, "life"), "end_offset", "committed_offset")


def by_hindsight(events: DataFrame, partitions: DataFrame, ends: DataFrame, *, longest: timedelta) -> DataFrame:
    """``events``, with the ``lag_seconds`` of those that extrapolate it looked up where the day's looks reach so far.

    ``partitions`` are what they list, ``ends`` are polls of the brokers; two looks that are more than ``longest`` apart
    tell nothing of the time between them.
    """
    asking = events.where(_is_extrapolated()).withColumns(
        {
            "topic": F.col("max_lag_topic"),
            "partition": F.col("max_lag_partition"),
            "at_ms": F.col("observed_at_ms"),
            "committed_offset": F.col("max_lag_committed"),
            "lag": F.col("max_lag"),
        }
    )
    logs = asking.select(*_LOG_OF_DAY).distinct()
    told = partitions.unionByName(_worst(events), allowMissingColumns=True)
    seen = log_end_samples(_of(logs, ends), _of(logs, told), within=_LOG_OF_DAY)
    in_time = sample_spans(seen, longest, within=_LOG_OF_DAY)
    placed = with_log_end(asking, in_time, _NEAREST).withColumn("life", F.col("look.life"))
    looked_up = with_log_end(placed, in_time, _CROSSED).withColumn(
        "lag_seconds", F.coalesce(seconds_behind(), "lag_seconds")
    )
    return events.where(~_is_extrapolated()).unionByName(looked_up.select(*events.columns))


def _is_extrapolated() -> Column:
    """As `karrot.signals` does it: what is committed lies below the first log end that the verdict knows."""
    below = (F.col("max_lag_committed") < F.col("max_lag_first_end")) & (F.col("max_lag") > 0)
    return F.coalesce(below, F.lit(False))


def _worst(events: DataFrame) -> DataFrame:
    """The max-lag partitions, which an event need not list, as rows of ``partitions``."""
    return events.select(
        "cluster",
        F.col("max_lag_topic").alias("topic"),
        F.col("max_lag_partition").alias("partition"),
        "day",
        "observed_at",
        F.col("max_lag_committed").alias("end_offset"),
        F.col("max_lag").alias("current_lag"),
    )


def _of(logs: DataFrame, rows: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(logs), on=list(_LOG_OF_DAY), how="left_semi")
