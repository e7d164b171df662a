"""Derives the tables ``verdict_runs`` and, from these, ``status_intervals``.

A run is a stretch of a day in which the events of one group say the same. Thousands of events become a few rows, from
which the incidents and intervals of months are found without reading those events again.
"""

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import Status
from karrot.pipeline.schemas import STATUS_INTERVALS, VERDICT_RUNS, columns_of, with_day
from karrot.pipeline.store.shared_columns import EVENT, GROUP

_ARRIVAL = ("received_at_ms", "seq")
_SAID = ("kind", "incident_id", "status")
_OLDEST_MS = 86_400_000
_SHOWN = [status.name for status in Status if status is not Status.NOTFOUND]


def severity(status: str | Column) -> Column:
    """Burrow's number of a status; NULL for a text that Burrow is not known to send. Names sort alphabetically."""
    named = F.col(status) if isinstance(status, str) else status
    chosen = F.when(named == Status.NOTFOUND.name, int(Status.NOTFOUND))
    for one in Status:
        chosen = chosen.when(named == one.name, int(one))
    return chosen


def status_named(number: Column) -> Column:
    """The status with a number."""
    names = F.array(*(F.lit(status.name) for status in Status))
    return F.when(number.isNotNull(), F.get(names, number))


def verdict_runs(events: DataFrame, partitions: DataFrame, *, silence: timedelta) -> DataFrame:
    """``verdict_runs`` of whole days of ``events`` (no event twice) and the ``partitions`` that they list.

    A run ends where the kind, the incident's id or the status changes, and where a group was silent for longer than
    ``silence``. Events are taken as they arrived; one observed before its predecessor is passed over, as in the
    service.

    Groups are sorted by hashes of 64 bits, which is cheaper than by names. Two that share one would be mixed up; among
    a million the odds are one in forty million.
    """
    arrival = Window.partitionBy("key", "day").orderBy(*_ARRIVAL)
    newest_before = F.max("at_ms").over(arrival.rowsBetween(Window.unboundedPreceding, -1))
    timely = (
        events.join(_bad_topics(partitions), on=list(EVENT), how="left")
        .withColumns({"key": F.xxhash64(*GROUP), "at_ms": _observed_ms()})
        .withColumn("newest_before", newest_before)
        .where(F.col("newest_before").isNull() | (F.col("at_ms") >= F.col("newest_before")))
    )
    said = F.struct(*_SAID)
    silent = F.col("at_ms") - F.col("newest_before") > silence // timedelta(milliseconds=1)
    begins = F.col("newest_before").isNull() | silent | ~said.eqNullSafe(F.lag(said).over(arrival))
    numbered = timely.withColumn("begins", begins).withColumn("run", F.count_if("begins").over(arrival))
    return _summed(numbered).select(*columns_of(with_day(VERDICT_RUNS)))


def _summed(numbered: DataFrame) -> DataFrame:
    """A row per run of the ``numbered`` events.

    First of those that have the same topics, in numbers alone, which is cheap; then there is little left to collect.
    """
    run = ("key", *GROUP, "day", "run", *_SAID)
    alike = numbered.groupBy(*run, "topics").agg(
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        F.count(F.lit(1)).alias("events"),
        F.max(F.when(F.col("begins"), F.col("incident_start"))).alias("incident_start"),
        F.max("total_lag").alias("peak_lag"),
    )
    return alike.groupBy(*run).agg(
        F.timestamp_millis(F.min("first_ms")).alias("first_at"),
        F.timestamp_millis(F.max("last_ms")).alias("last_at"),
        F.sum("events").alias("events"),
        F.max("incident_start").alias("incident_start"),
        F.max("peak_lag").alias("peak_lag"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("topics")))).alias("topics"),
    )


def _observed_ms() -> Column:
    """When an event was observed: not after its receipt, and not so long before that a clock must have been wrong."""
    observed, received = F.col("observed_at_ms"), F.col("received_at_ms")
    return F.when(observed.between(received - _OLDEST_MS, received), observed).otherwise(received)


def _bad_topics(partitions: DataFrame) -> DataFrame:
    bad = partitions.where(severity("status") > Status.OK)
    return bad.groupBy(*EVENT).agg(F.array_sort(F.collect_set("topic")).alias("topics"))


def in_order(runs: DataFrame) -> DataFrame:
    """``runs`` of any days with ``heard_at``, the last word of their group before them, less those that came too late.

    What arrives just after midnight may have been observed before a verdict of the day before.
    """
    before = Window.partitionBy(*GROUP).orderBy("day", "run").rowsBetween(Window.unboundedPreceding, -1)
    heard = runs.withColumn("heard_at", F.max("last_at").over(before))
    return heard.where(F.col("heard_at").isNull() | (F.col("last_at") >= F.col("heard_at")))


def silent_before(silence: timedelta) -> Column:
    """Whether the group had been silent before a run `in_order`."""
    return F.coalesce(F.col("first_at") > F.col("heard_at") + F.lit(silence), F.lit(False))


def status_intervals(runs: DataFrame, *, silence: timedelta, as_of: datetime) -> DataFrame:
    """``status_intervals`` of ``runs``, cut at midnight UTC.

    A status lasts until the next verdict, and no longer than ``silence`` beyond the last: then it is not known. What
    lasts still ends at ``as_of``, the newest event of all. A deleted group has no status.
    """
    order = Window.partitionBy(*GROUP).orderBy("day", "run")
    expires = F.col("last_at") + F.lit(silence)
    followed = in_order(runs).withColumn("next_at", F.coalesce(F.lead("first_at").over(order), F.lit(as_of)))
    lasting = followed.withColumn("until", F.greatest("last_at", F.least(expires, "next_at")))
    changes = ~F.col("status").eqNullSafe(F.lag("status").over(order)) | silent_before(silence)
    whole = (
        lasting.withColumn("changes", changes)
        .withColumn("interval", F.count_if("changes").over(order))
        .groupBy(*GROUP, "interval", "status")
        .agg(F.min("first_at").alias("from_at"), F.max("until").alias("to_at"))
        .where(F.col("status").isin(_SHOWN) & (F.col("from_at") < F.col("to_at")))
    )
    return _cut_at_midnight(whole).select(*columns_of(with_day(STATUS_INTERVALS)))


def _cut_at_midnight(intervals: DataFrame) -> DataFrame:
    midnight, next_midnight = F.col("day").cast("timestamp"), F.date_add("day", 1).cast("timestamp")
    days = intervals.withColumn("day", F.explode(F.sequence(F.to_date("from_at"), F.to_date("to_at"))))
    return days.select(
        *GROUP,
        "status",
        F.greatest("from_at", midnight).alias("from_at"),
        F.least("to_at", next_midnight).alias("to_at"),
        "day",
    ).where(F.col("from_at") < F.col("to_at"))
