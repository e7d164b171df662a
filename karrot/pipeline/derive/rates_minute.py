"""Derives the table ``rates_minute``: produce and consume rates of each partition, minute by minute.

Each sample of a partition has the newest committed offset and the log end (the committed offset plus the lag). Between
two samples, both offsets are interpolated, as if they grew evenly. Offsets are never extrapolated, so the rates of a
minute cover only the time between samples.
"""

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import LEFT
from karrot.pipeline.schemas_and_conversions import EVENT, GROUP, PARTITION, RATES_MINUTE, columns_of, rounded

_MINUTE_MS = 60_000
_MOST_PER_MS = 1_000_000
"""The highest rate, in messages per millisecond. A higher rate means a wrong offset, as in `karrot.signals`."""


_SAMPLE = (*PARTITION, "seq", "received_at", "owner", "end_offset", "current_lag", "day")


def whole_listings(events: DataFrame, partitions: DataFrame) -> DataFrame:
    """Keep ``partitions`` of events that list all partitions of their group; a webhook lists only the bad partitions.

    ``partition_count`` has no partitions of topics that the group has left, so these are left out first.
    The rows have the columns that rates and skew need, and ``group``, a hash of the group. All rows of a group are in
    one partition of the frame, so whatever is computed within a group needs no other shuffle. A union with the events
    and one sort by a number cost less than a join.
    """
    group = F.xxhash64(*GROUP).alias("group")
    counts = events.where(F.col("partition_count") > 0).select(group, *EVENT, "partition_count")
    read = partitions.where(~F.col("status").eqNullSafe(LEFT))
    listed = read.select(group, "log_id", *_SAMPLE, F.lit(None).cast("bigint").alias("partition_count"))
    # The sort begins with the number of the event, which almost always decides.
    of_event = Window.partitionBy("seq", "group", "log_id")
    listed_in_all = F.max("partition_count").over(of_event)
    rows = F.count_if(F.col("partition_count").isNull()).over(of_event)
    both = listed.unionByName(counts, allowMissingColumns=True).repartition("group")
    counted = both.withColumn("is_whole", (listed_in_all == rows) & F.col("partition_count").isNull())
    return counted.where("is_whole").select("group", *_SAMPLE)


def rates_minute(listings: DataFrame, *, longest: timedelta) -> DataFrame:
    """Make ``rates_minute`` from `whole_listings`. Two samples more than ``longest`` apart give no rates.

    ``coverage`` is the share of the minute that lies between samples; the rates are means over that share. If the log
    shrank (the topic was created again) or the commit went back (a rewind), the time between the samples is not
    covered. The same applies if more than 10^9 messages per second came or went.
    """
    first = F.col("from_ms") - F.pmod("from_ms", F.lit(_MINUTE_MS))
    minutes = F.sequence(first, F.col("to_ms") - 1, F.lit(_MINUTE_MS).cast("long"))
    spans = _spans(listings, longest).withColumn("minute_ms", F.explode(minutes))
    begin = F.greatest("from_ms", "minute_ms")
    until = F.least(F.col("to_ms"), F.col("minute_ms") + _MINUTE_MS)
    share = (until - begin) / (F.col("to_ms") - F.col("from_ms"))
    summed = spans.groupBy("group", *PARTITION, "minute_ms").agg(
        F.sum(F.col("produced") * share).alias("produced"),
        F.sum(F.col("consumed") * share).alias("consumed"),
        F.sum(until - begin).alias("seen_ms"),
        F.max_by("lag", "to_ms").alias("lag"),
    )
    return summed.select(*PARTITION, *_per_minute()).select(*columns_of(RATES_MINUTE), F.to_date("minute").alias("day"))


def _spans(listings: DataFrame, longest: timedelta) -> DataFrame:
    """Pair successive samples of a partition. Add the growth of its log end and of its committed offset.

    The sort compares a hash of the partition before its names.
    """
    order = Window.partitionBy("key", "group", *PARTITION).orderBy("to_ms", "seq")
    samples = listings.select(
        "group",
        F.xxhash64(*PARTITION).alias("key"),
        *PARTITION,
        "seq",
        F.unix_millis("received_at").alias("to_ms"),
        F.col("end_offset").alias("committed"),
        F.try_add("end_offset", "current_lag").alias("head"),
        F.col("current_lag").alias("lag"),
    ).where(F.col("head").isNotNull())
    grown = samples.select(
        "group",
        *PARTITION,
        "lag",
        F.lag("to_ms").over(order).alias("from_ms"),
        "to_ms",
        F.try_subtract("head", F.lag("head").over(order)).alias("produced"),
        F.try_subtract("committed", F.lag("committed").over(order)).alias("consumed"),
    )
    length = F.col("to_ms") - F.col("from_ms")
    forward = (F.col("produced") >= 0) & (F.col("consumed") >= 0)
    possible = F.greatest("produced", "consumed") <= length * _MOST_PER_MS
    return grown.where((length > 0) & (length <= longest // timedelta(milliseconds=1)) & forward & possible)


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
