"""Computes lag in seconds by hindsight: how long ago the log ended where the group's committed offset is.

A verdict knows the log end of the last minutes. For a group that is further behind it extrapolates: it says how long
the lag would take to come in at the rate of those minutes. That is hours too much once the producer of a nightly batch
is done. The history knows from other verdicts, and from polls, when the log ended at that offset.

Between two samples of a log end that are not too far apart it is interpolated: the log is taken to grow evenly. Before
the first sample and after the last it is not known.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.store.shared_columns import LOG, rounded

_BEHIND_MS: Final = 60_000
"""How old a view of the log end may be: Burrow's is up to one refresh old (10 s unless set otherwise)."""

_LOG_OF_DAY: Final = (*LOG, "day")
"""A log on a day alone, so that no day has to be derived again for what another one saw."""

_LAST: Final = 2**63 - 1
_LOOK: Final = ("life", "at_ms", "end_offset", "next_ms", "next_offset")


def log_end_samples(ends: DataFrame, partitions: DataFrame, *, within: Sequence[str] = LOG) -> DataFrame:
    """``LOG``, ``day``, ``at_ms``, ``start_offset`` and ``end_offset`` of rows of ``ends`` and of ``partitions``.

    A partition that was polled on a day is not taken from events of that day. What a verdict tells may be a refresh
    old: an end below one that was told within the minute before is such an old view, and left out.
    """
    polled = ends.select(*LOG, "day", F.col("observed_at_ms").alias("at_ms"), "start_offset", "end_offset")
    told = partitions.select(
        *LOG,
        "day",
        F.unix_millis("observed_at").alias("at_ms"),
        F.lit(None).cast("bigint").alias("start_offset"),
        F.try_add("end_offset", "current_lag").alias("end_offset"),
    )
    both = polled.withColumn("polled", F.lit(True)).unionByName(told.withColumn("polled", F.lit(False)))
    of_day = Window.partitionBy(*LOG, "day")
    just_before = Window.partitionBy(*within).orderBy("at_ms").rangeBetween(-_BEHIND_MS, -1)
    return (
        both.where(F.col("end_offset").isNotNull() & F.col("at_ms").isNotNull())
        .withColumn("is_polled", F.bool_or("polled").over(of_day))
        .where(F.col("polled") | ~F.col("is_polled"))
        .groupBy(*LOG, "day", "at_ms")
        .agg(*(F.max(name).alias(name) for name in ("polled", "start_offset", "end_offset")))
        .withColumn("told", F.max("end_offset").over(just_before))
        .where(F.col("polled") | F.col("told").isNull() | (F.col("told") <= F.col("end_offset")))
        .drop("polled", "told")
    )


def sample_spans(seen: DataFrame, longest: timedelta, *, within: Sequence[str] = LOG) -> DataFrame:
    """Each look with the next one: ``within``, ``life``, ``at_ms``, ``end_offset``, ``next_ms`` and ``next_offset``.

    The next one is NULL if it came more than ``longest`` later, or if the log ended lower then: the topic was created
    again, which begins another ``life``.
    """
    in_time = Window.partitionBy(*within).orderBy("at_ms")
    fell = F.col("end_offset") < F.lag("end_offset").over(in_time)
    numbered = seen.withColumn("fell", F.coalesce(fell, F.lit(False))).withColumn(
        "life", F.count_if("fell").over(in_time)
    )
    in_life = Window.partitionBy(*within, "life").orderBy("at_ms")
    next_ms, next_offset = F.lead("at_ms").over(in_life), F.lead("end_offset").over(in_life)
    near = next_ms - F.col("at_ms") <= longest // timedelta(milliseconds=1)
    return numbered.select(
        *within,
        "life",
        "at_ms",
        "end_offset",
        F.when(near, next_ms).alias("next_ms"),
        F.when(near, next_offset).alias("next_offset"),
    )


class AsOf(NamedTuple):
    """Which look at a log a row is given, as ``name``: the last one ``looked`` at not beyond what is ``asked``."""

    name: str
    within: tuple[str, ...]
    looked: str
    asked: str


def nearest(within: Sequence[str]) -> AsOf:
    """The last look at or before ``at_ms``, as ``look``."""
    return AsOf("look", tuple(within), "at_ms", "at_ms")


def crossed(within: Sequence[str]) -> AsOf:
    """The look after which the log of the same ``life`` grew beyond ``committed_offset``, as ``crossed``."""
    return AsOf("crossed", (*within, "life"), "end_offset", "committed_offset")


def with_log_end(rows: DataFrame, ends: DataFrame, by: AsOf) -> DataFrame:
    """Add to each row the last of the looks at its log whose place is not beyond the row's; of equal ones the latest.

    ``ends`` are `sample_spans`. An as-of join: the union, and in it the last look that is not NULL.
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
    look, committed = F.col("crossed"), F.col("committed_offset")
    since, grown = (F.try_subtract(each, look.end_offset) for each in (committed, look.next_offset))
    share = F.try_divide(since, grown)
    ended_ms = look.at_ms + share * (look.next_ms - look.at_ms)
    seconds = rounded((F.col("at_ms") - ended_ms) / 1000, 3)
    return F.when(F.col("lag") == 0, 0.0).when(seconds > 0, seconds).when(seconds <= 0, 0.0)


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
    # The max-lag partitions, which an event need not list, as rows of ``partitions``.
    worst = events.select(
        "cluster",
        F.col("max_lag_topic").alias("topic"),
        F.col("max_lag_partition").alias("partition"),
        "day",
        "observed_at",
        F.col("max_lag_committed").alias("end_offset"),
        F.col("max_lag").alias("current_lag"),
    )
    told = partitions.unionByName(worst, allowMissingColumns=True)
    seen = log_end_samples(_of(logs, ends), _of(logs, told), within=_LOG_OF_DAY)
    in_time = sample_spans(seen, longest, within=_LOG_OF_DAY)
    placed = with_log_end(asking, in_time, nearest(_LOG_OF_DAY)).withColumn("life", F.col("look.life"))
    looked_up = with_log_end(placed, in_time, crossed(_LOG_OF_DAY)).withColumn(
        "lag_seconds", F.coalesce(seconds_behind(), "lag_seconds")
    )
    return events.where(~_is_extrapolated()).unionByName(looked_up.select(*events.columns))


def _is_extrapolated() -> Column:
    """As `karrot.signals` does it: what is committed lies below the first log end that the verdict knows."""
    below = (F.col("max_lag_committed") < F.col("max_lag_first_end")) & (F.col("max_lag") > 0)
    return F.coalesce(below, F.lit(False))


def _of(logs: DataFrame, rows: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(logs), on=list(_LOG_OF_DAY), how="left_semi")
