"""Derives the table ``rates_minute``: produce and consume rates of each partition, minute by minute.

Every sample of a partition has its log end (the newest commit plus the lag) and the commit. Between two samples both
are taken to grow evenly. They are interpolated, never extrapolated, so a minute covers only the time between samples.
"""

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas import RATES_MINUTE, columns_of
from karrot.pipeline.store.shared_columns import EVENT, PARTITION, rounded

_MINUTE_MS = 60_000


def whole_listings(events: DataFrame, partitions: DataFrame) -> DataFrame:
    """The rows of ``partitions`` whose event lists all partitions of its group: a webhook lists the bad ones alone."""
    counts = events.where(F.col("partition_count") > 0).select(*EVENT, "partition_count")
    listed = F.count(F.lit(1)).over(Window.partitionBy(*EVENT))
    counted = partitions.join(counts, on=list(EVENT), how="inner").withColumn("listed", listed)
    return counted.where(F.col("listed") == F.col("partition_count")).select(*partitions.columns)


def rates_minute(listings: DataFrame, *, longest: timedelta) -> DataFrame:
    """``rates_minute`` of `whole_listings`. Looks more than ``longest`` apart know nothing of the time between them.

    ``coverage`` is the share of the minute that lies between looks, and the rates are of that share. A log that shrank
    (a topic that was created again) or a commit that went back (a rewind) tells neither: that time is not covered.
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
    """The time between each two looks at a partition, with the growth of its log and of its commit."""
    order = Window.partitionBy(*PARTITION).orderBy("to_ms", "seq")
    looks = listings.select(
        *PARTITION,
        "seq",
        F.unix_millis("received_at").alias("to_ms"),
        F.col("end_offset").alias("committed"),
        F.try_add("end_offset", "current_lag").alias("head"),
        F.col("current_lag").alias("lag"),
    ).where(F.col("head").isNotNull())
    grown = looks.select(
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
