"""Derives the table ``lag_minute``: the lag of each group, minute by minute."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.event import Status
from karrot.pipeline.derive.status_intervals import severity, status_named
from karrot.pipeline.schemas import LAG_MINUTE, columns_of
from karrot.pipeline.store.shared_columns import GROUP

_SEQ_BITS = 47


def lag_minute(events: DataFrame) -> DataFrame:
    """Make ``lag_minute`` from ``events``, which hold each event once.

    An event belongs to the minute in which it was received. Unknown lags are left out, so ``lag_last`` is the last
    known lag. ``not_ok`` counts the events worse than OK.
    """
    lag = F.col("total_lag")
    worst = F.max(severity("status"))
    return (
        events.groupBy(*GROUP, F.date_trunc("minute", "received_at").alias("minute"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min(lag).alias("lag_min"),
            F.max(lag).alias("lag_max"),
            F.avg(lag).alias("lag_avg"),
            F.max_by(lag, F.when(lag.isNotNull(), _place_in_minute())).alias("lag_last"),
            F.max("lag_seconds").alias("lag_seconds_max"),
            status_named(worst).alias("worst_status"),
            F.count_if(severity("status") > Status.OK).alias("not_ok"),
            F.lit(None).cast("double").alias("coverage"),
            F.lit(None).cast("bigint").alias("uncommitted"),
        )
        .select(*columns_of(LAG_MINUTE), F.to_date("minute").alias("day"))
    )


def _place_in_minute() -> Column:
    """Pack the millisecond and the sequence number into one long, to sort by.

    With a struct, Spark would use a sort instead of a hash aggregate.
    """
    milliseconds = F.pmod(F.col("received_at_ms"), F.lit(60_000))
    return F.shiftleft(milliseconds, _SEQ_BITS).bitwiseOR(F.col("seq").bitwiseAND(F.lit((1 << _SEQ_BITS) - 1)))
