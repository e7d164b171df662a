"""Derives the table ``rates_minute``: produce and consume rates of each partition, minute by minute.

Each sample of a partition has the newest committed offset and the log end (the committed offset plus the lag). Between
two samples, both offsets are interpolated, as if they grew evenly. Offsets are never extrapolated, so the rates of a
minute cover only the time between samples.
"""

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas import RATES_MINUTE, columns_of
from karrot.pipeline.store.shared_columns import EVENT, PARTITION, rounded

_MINUTE_MS = 60_000


def whole_listings(events: DataFrame, partitions: DataFrame) -> DataFrame:
    """The rows of ``partitions`` whose event lists all partitions of its group; a webhook lists only the bad ones."""
    counts = events.where(F.col("partition_count") > 0).select(*EVENT, "partition_count")
    listed = F.count(F.lit(1)).over(Window.partitionBy(*EVENT))
    counted = partitions.join(counts, on=list(EVENT), how="inner").withColumn("listed", listed)
    return counted.where(F.col("listed") == F.col("partition_count")).select(*partitions.columns)


def rates_minute(listings: DataFrame, *, longest: timedelta) -> DataFrame:
    """Make ``rates_minute`` from `whole_listings`. Two samples more than ``longest`` apart give no rates.

    ``coverage`` is the share of the minute that lies between samples; the rates are means over that share. If the log
    shrank (the topic was created again) or the commit went back (a rewind), the time between the samples is not
    covered.
    """
    spans = _spans(listings, longest).withColumn("minute_ms", F.explode(_minutes()))
    begin = F.greatest("from_ms", "minute_ms")
    until = F.least(F.col("to_ms"), F.col("minute_ms") + _MINUTE_MS)
    share = (until - begin) / (F.col("to_ms") - F.col("from_ms"))
    summed = spans.groupBy(*PARTITION, "minute_ms").agg(
        F.sum(F.col("produced") * share).alias("produced"),
        F.sum(F.col("consumed") * share).alias("consumed"),
        F.sum(until - begin).alias("seen_ms"),
        F.max_by("lag", "to_ms").alias("lag"),
    )
    return summed.select(*PARTITION, *_per_minute()).select(*columns_of(RATES_MINUTE), F.to_date("minute").alias("day"))


def _spans(listings: DataFrame, longest: timedelta) -> DataFrame:
    """The time between two successive samples of a partition, with the growth of its log and of its commit."""
    order = Window.partitionBy(*PARTITION).orderBy("to_ms", "seq")
    samples = listings.select(
        *PARTITION,
        "seq",
        F.unix_millis("received_at").alias("to_ms"),
        F.col("end_offset").alias("committed"),
        F.try_add("end_offset", "current_lag").alias("head"),
        F.col("current_lag").alias("lag"),
    ).where(F.col("head").isNotNull())
    grown = samples.select(
        *PARTITION,
        "lag",
        F.lag("to_ms").over(order).alias("from_ms"),
        "to_ms",
        F.try_subtract("head", F.lag("head").over(order)).alias("produced"),
        F.try_subtract("committed", F.lag("committed").over(order)).alias("consumed"),
    )
    length = F.col("to_ms") - F.col("from_ms")
    forward = (F.col("produced") >= 0) & (F.col("consumed") >= 0)
    return grown.where((length > 0) & (length <= longest // timedelta(milliseconds=1)) & forward)


def _minutes() -> Column:
    """The minutes that a span touches, as epoch milliseconds."""
    first = F.col("from_ms") - F.pmod("from_ms", F.lit(_MINUTE_MS))
    return F.sequence(first, F.col("to_ms") - 1, F.lit(_MINUTE_MS).cast("long"))


def _per_minute() -> list[Column]:
    produce = F.col("produced") * 1000 / F.col("seen_ms")
    consume = F.col("consumed") * 1000 / F.col("seen_ms")
    catch_up = F.when(F.col("lag") == 0, 0.0).when(consume > produce, F.col("lag") / (consume - produce))
    return [
        F.timestamp_millis("minute_ms").alias("minute"),
        F.floor(F.col("produced") + 0.5).alias("produced"),
        F.floor(F.col("consumed") + 0.5).alias("consumed"),
        rounded(produce, 6).alias("produce_rate"),
        rounded(consume, 6).alias("consume_rate"),
        rounded(catch_up, 3).alias("catch_up_seconds"),
        (F.col("seen_ms") / _MINUTE_MS).alias("coverage"),
    ]
