"""Derives the table ``verdict_runs`` and, from it, ``status_intervals``.

A verdict run is a part of a piece in which all events of a group have the same kind, incident id and status. Thousands
of events become a few runs. Incidents and intervals of months are computed from the runs and not from the events.
"""

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import NO_PROBLEM, Status
from karrot.pipeline.schemas_and_conversions import (
    EVENT,
    GROUP,
    STATUS_INTERVALS,
    VERDICT_RUNS,
    columns_of,
    piece_of,
    with_day,
)

_ARRIVAL = ("received_at_ms", "seq")
_SAID = ("piece", "kind", "incident_id", "status")
_OLDEST_MS = 86_400_000
_RUNS_PER_HOUR = 1_000_000_000
_SHOWN = [status.name for status in Status if status is not Status.NOTFOUND]


def severity(status: str | Column) -> Column:
    """Return Burrow's number of a status, for sorting; NULL for an unknown status."""
    named = F.col(status) if isinstance(status, str) else status
    chosen = F.when(named == Status.NOTFOUND.name, int(Status.NOTFOUND))
    for one in Status:
        chosen = chosen.when(named == one.name, int(one))
    return chosen


def status_named(number: Column) -> Column:
    names = F.array(*(F.lit(status.name) for status in Status))
    return F.when(number.isNotNull(), F.get(names, number))


def verdict_runs(
    events: DataFrame, partitions: DataFrame, *, silence: timedelta, earlier: DataFrame | None = None
) -> DataFrame:
    """Make ``verdict_runs``, with the column ``piece``.

    ``events`` are all events of some pieces, each event once, and ``partitions`` are those that they list. If a day
    lacks its first pieces, ``earlier`` has the ``verdict_runs`` of these pieces.

    A run ends when the kind, the incident's id or the status changes, when the group was silent for longer than
    ``silence``, or at the end of a piece. Events are in the order of arrival. An event that was observed before an
    earlier event of its day is ignored, as in the service.

    Groups are sorted by a hash of 64 bits, which is cheaper than by name. Two groups with the same hash would be mixed
    up. Among a million groups, the probability of this is one in forty million.
    """
    arrival = Window.partitionBy("key", "day").orderBy(*_ARRIVAL)
    observed, received = F.col("observed_at_ms"), F.col("received_at_ms")
    # An impossible time, after the receipt or over a day before it, is replaced by the time of receipt.
    at_ms = F.when(observed.between(received - _OLDEST_MS, received), observed).otherwise(received)
    bad = partitions.where(~F.col("status").isin(*sorted(NO_PROBLEM)))
    bad_topics = bad.groupBy(*EVENT).agg(F.array_sort(F.collect_set("topic")).alias("topics"))
    newest_before = F.max("at_ms").over(arrival.rowsBetween(Window.unboundedPreceding, -1))
    heard = events.withColumn("piece", piece_of("received_at"))
    if earlier is not None:  # each run stands for its last event, without a piece
        last_ms = {name: F.unix_millis("last_at") for name in ("received_at_ms", "observed_at_ms")}
        lasts = earlier.withColumns(last_ms | {"seq": F.lit(0)}).select(*GROUP, "day", "seq", *last_ms)
        heard = heard.unionByName(lasts, allowMissingColumns=True)
    timely = (
        heard.join(bad_topics, on=list(EVENT), how="left")
        .withColumns({"key": F.xxhash64(*GROUP), "at_ms": at_ms})
        .withColumn("newest_before", newest_before)
        .where(F.col("newest_before").isNull() | (F.col("at_ms") >= F.col("newest_before")))
    )
    said = F.struct(*_SAID)
    silent = F.col("at_ms") - F.col("newest_before") > silence // timedelta(milliseconds=1)
    begins = F.col("newest_before").isNull() | silent | ~said.eqNullSafe(F.lag(said).over(arrival))
    numbered = timely.withColumn("begins", begins).withColumn("run", F.count_if("begins").over(arrival))
    in_piece = F.row_number().over(Window.partitionBy("key", "day", "piece").orderBy("run"))
    runs = _summed(numbered.where(F.col("piece").isNotNull()))
    return runs.withColumn("run", F.col("piece") * F.lit(_RUNS_PER_HOUR).cast("bigint") + in_piece).select(
        *columns_of(with_day(VERDICT_RUNS)), "piece"
    )


def _summed(numbered: DataFrame) -> DataFrame:
    """Make a row per run from the ``numbered`` events.

    The first aggregate is by run and topics, and has only numbers, which is cheap. It leaves few rows for the second
    aggregate, which collects the topics.
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


def in_order(runs: DataFrame) -> DataFrame:
    """Add ``heard_at``, the time of the group's last verdict before each run, and drop runs that came too late.

    An event that arrives just after midnight may have been observed before a verdict of the day before.
    """
    before = Window.partitionBy(*GROUP).orderBy("day", "run").rowsBetween(Window.unboundedPreceding, -1)
    heard = runs.withColumn("heard_at", F.max("last_at").over(before))
    return heard.where(F.col("heard_at").isNull() | (F.col("last_at") >= F.col("heard_at")))


def silent_before(silence: timedelta) -> Column:
    """Whether the group was silent before a run; the runs are `in_order`."""
    return F.coalesce(F.col("first_at") > F.col("heard_at") + F.lit(silence), F.lit(False))


def status_intervals(runs: DataFrame, *, silence: timedelta, as_of: datetime) -> DataFrame:
    """Make ``status_intervals`` from ``runs``, cut at midnight UTC.

    A status lasts until the next verdict, but at most ``silence`` after its last verdict. After that, the status is
    unknown. An open interval ends at ``as_of``, the time of the newest event of all groups. A deleted group has no
    status.
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
