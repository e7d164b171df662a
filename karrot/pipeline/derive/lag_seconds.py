"""Computes lag in seconds from past log ends: the time since the committed offset was the log end.

A verdict knows only the log ends of the last minutes. If a group is further behind, the verdict extrapolates: it
divides the lag by the produce rate of those minutes. After a nightly batch has ended, this estimate is hours too high.
The tables keep the log ends of all verdicts and polls, so they show when the log end was at that offset.

Between two samples that are not too far apart, the log end is interpolated, as if the log grew evenly. Before the first
sample, `age_from_samples` extrapolates the time or gives a lower bound.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import AgeKind, Source
from karrot.eventlog.log_end_history import REFRESH_MS
from karrot.pipeline.schemas_and_conversions import LOG, rounded

BEHIND_MS: Final = 60_000
"""How old a verdict's log end can be. Burrow's log ends are up to one refresh old, by default 10 s."""

_LOG_OF_DAY: Final = (*LOG, "day")
"""The columns of one log on one day. Samples of other days are not used, so they never change this day."""

_LAST: Final = 2**63 - 1
_EXACT, _EXTRAPOLATED, _AT_LEAST = (kind.name.lower() for kind in AgeKind)


def all_samples(ends: DataFrame, partitions: DataFrame) -> DataFrame:
    """Make log-end samples: LOG, ``day``, ``at_ms``, ``start_offset``, ``end_offset`` and ``polled``.

    They come from the ``ends`` that were polled, and from the ``partitions`` that verdicts list.
    """
    polled = ends.select(
        *LOG, "day", F.col("observed_at_ms").alias("at_ms"), "start_offset", "end_offset", F.lit(True).alias("polled")
    )
    judged = partitions.select(
        *LOG,
        "day",
        F.unix_millis("observed_at").alias("at_ms"),
        F.lit(None).cast("bigint").alias("start_offset"),
        F.try_add("end_offset", "current_lag").alias("end_offset"),
        F.lit(False).alias("polled"),
    )
    return polled.unionByName(judged).where(F.col("end_offset").isNotNull() & F.col("at_ms").isNotNull())


def _agreeing(samples: DataFrame) -> DataFrame:
    """Keep one sample per timestamp.

    If a partition was polled on a day, that day's events give no samples of the partition. The log end of a verdict can
    be one refresh old. So a verdict's log end is left out if a sample of the minute before it is higher.
    """
    of_day = Window.partitionBy(*_LOG_OF_DAY).orderBy("at_ms")
    whole_day = of_day.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    just_before = of_day.rangeBetween(-BEHIND_MS, -1)
    kept = (
        # All later steps stay within a log, so this shuffle of the samples is the only one.
        samples.repartition(*_LOG_OF_DAY)
        .groupBy(*_LOG_OF_DAY, "at_ms", "polled")
        .agg(F.max("end_offset").alias("end_offset"))
        .withColumn("is_polled", F.bool_or("polled").over(whole_day))
        .where(F.col("polled") | ~F.col("is_polled"))
        .withColumn("before", F.max("end_offset").over(just_before))
    )
    return kept.where(F.col("polled") | F.col("before").isNull() | (F.col("before") <= F.col("end_offset"))).drop(
        "polled", "is_polled", "before"
    )


def sample_spans(seen: DataFrame, longest: timedelta) -> DataFrame:
    """Pair each sample with the next one, in the columns ``next_ms`` and ``next_offset``, and number its ``life``.

    The next sample is NULL if it came more than ``longest`` after this sample. It is also NULL if its log end is lower.
    In that case, the topic was created again, and another ``life`` begins.
    """
    in_time = Window.partitionBy(*_LOG_OF_DAY).orderBy("at_ms")
    fell = F.col("end_offset") < F.lag("end_offset").over(in_time)
    next_ms, next_offset = F.lead("at_ms").over(in_time), F.lead("end_offset").over(in_time)
    is_near = next_ms - F.col("at_ms") <= longest // timedelta(milliseconds=1)
    follows = is_near & (next_offset >= F.col("end_offset"))
    paired = seen.select(
        *_LOG_OF_DAY,
        "at_ms",
        "end_offset",
        F.coalesce(fell, F.lit(False)).alias("fell"),
        F.when(follows, next_ms).alias("next_ms"),
        F.when(follows, next_offset).alias("next_offset"),
    )
    life = F.count_if("fell").over(in_time).alias("life")
    return paired.select(*_LOG_OF_DAY, life, "at_ms", "end_offset", "next_ms", "next_offset")


def _with_last(
    rows: DataFrame, samples: DataFrame, name: str, within: Sequence[str], *, sampled: str, asked: str
) -> DataFrame:
    """Add to each row, in the column ``name``, the last sample whose ``sampled`` is at most the row's ``asked``.

    Of samples with equal ``sampled``, the row gets the latest by ``at_ms``. The as-of join is a union of rows and
    samples, ordered by place. Each row takes the last sample before it.
    """
    span = F.struct(*(each for each in samples.columns if each not in within))
    row = F.struct(*rows.columns)
    placed = samples.select(*within, F.col(sampled).alias("place"), F.col("at_ms").alias("tie"), span.alias("span"))
    asking = rows.select(*within, F.col(asked).alias("place"), F.lit(_LAST).alias("tie"), row.alias("row"))
    order = Window.partitionBy(*within).orderBy("place", "tie").rowsBetween(Window.unboundedPreceding, 0)
    return (
        placed.unionByName(asking, allowMissingColumns=True)
        .withColumn(name, F.last("span", ignorenulls=True).over(order))
        .where(F.col("row").isNotNull())
        .select("row.*", name)
    )


def age_from_samples(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """Add ``age``: ``seconds`` and ``kind``, by the rule of `karrot.eventlog.log_end_history.LogEndHistory.age_at`.

    ``rows`` have the columns of a log and day, ``at_ms``, ``committed_offset`` and ``refresh_ms``, the maximum age of a
    log end of the row's source. ``spans`` are `sample_spans`. The age is NULL without a sample at or before the row,
    and if the committed offset was reached in a time without samples. It is extrapolated from samples until
    ``until_ms``.
    """
    bounded = _bounded(spans)
    placed = _with_last(rows, bounded, "sample", _LOG_OF_DAY, sampled="at_ms", asked="at_ms")
    committed, oldest = F.col("committed_offset"), F.col("sample.oldest")
    is_older = committed < oldest.end_offset
    # Extrapolation uses the first sample that is as far above the oldest sample as the commit is below it. This sample
    # follows the last sample that is below this place.
    mirrored = F.try_subtract(F.try_add(oldest.end_offset, oldest.end_offset), committed) - 1
    asking = placed.withColumns(
        {"life": F.col("sample.life"), "oldest": oldest, "asked": F.when(is_older, mirrored).otherwise(committed)}
    )
    found = _with_last(asking, bounded, "found", (*_LOG_OF_DAY, "life"), sampled="end_offset", asked="asked")
    return found.withColumn("age", _age()).drop("sample", "life", "oldest", "asked", "found")


def _bounded(spans: DataFrame) -> DataFrame:
    """Add to `sample_spans` what surrounds a sample in its life.

    ``still_ms`` is the time of the sample before, if its log end is equal. ``following`` is the next sample, however
    late it came. ``oldest`` is the first sample.
    """
    in_time = Window.partitionBy(*_LOG_OF_DAY).orderBy("at_ms")
    sample, before = F.struct("at_ms", "end_offset"), F.lag("end_offset").over(in_time)
    is_same_life = F.lead("end_offset").over(in_time) >= F.col("end_offset")
    is_first = before.isNull() | (F.col("end_offset") < before)
    surrounded = spans.withColumns(
        {
            "still_ms": F.when(before == F.col("end_offset"), F.lag("at_ms").over(in_time)),
            "following": F.when(is_same_life, F.lead(sample).over(in_time)),
            "first": F.when(is_first, sample),
        }
    )
    return surrounded.withColumn("oldest", F.last("first", ignorenulls=True).over(in_time)).drop("first")


def _age() -> Column:
    committed, now_ms, refresh_ms = F.col("committed_offset"), F.col("at_ms"), F.col("refresh_ms")
    below, oldest = F.col("found"), F.col("oldest")
    is_seen = below.following.at_ms <= F.col("until_ms")
    above = F.when((committed < oldest.end_offset) & is_seen, below.following)
    is_within = committed >= oldest.end_offset

    def aged(ended_ms: Column, per_message: Column, is_sample: Column, kind: str) -> Column:
        delay_ms = F.when(is_sample, 0.0).otherwise(F.greatest(F.lit(0.0), (refresh_ms - per_message) / 2))
        seconds = F.greatest(F.lit(0.0), now_ms - ended_ms + delay_ms) / 1000
        return F.struct(rounded(seconds, 3).alias("seconds"), F.lit(kind).alias("kind"))

    stood_ms = F.when(below.at_ms - below.still_ms <= refresh_ms, below.still_ms)
    since_ms = F.coalesce(stood_ms, below.at_ms)
    between = F.try_divide(below.next_ms - since_ms, F.try_subtract(below.next_offset, below.end_offset))
    past = F.try_subtract(committed, below.end_offset)
    before = F.try_divide(oldest.at_ms - above.at_ms, oldest.end_offset - above.end_offset)
    missing = F.try_subtract(oldest.end_offset, committed)
    is_sample = past == 0
    return (
        F.when(is_within & below.next_ms.isNotNull(), aged(since_ms + past * between, between, is_sample, _EXACT))
        .when(is_within & below.following.isNull(), aged(below.at_ms, F.lit(0.0), is_sample, _EXACT))
        .when(is_within | oldest.isNull(), None)
        .when(above.isNotNull(), aged(oldest.at_ms - missing * before, before, F.lit(False), _EXTRAPOLATED))
        .otherwise(aged(oldest.at_ms, F.lit(_LAST), F.lit(False), _AT_LEAST))
    )


def by_hindsight(
    events: DataFrame, seen: DataFrame, partitions: DataFrame, ends: DataFrame, *, longest: timedelta
) -> DataFrame:
    """Replace each ``lag_seconds`` of ``events`` that is not exact by an exact one, if the samples suffice.

    An unknown ``lag_seconds`` is replaced by whatever the samples give. Only the max-lag partition of an event has its
    committed offset in ``events``. If ``lag_seconds`` belongs to another partition, the value stays.

    ``seen`` are all events whose log ends are samples, and ``partitions`` are the partitions that they list. ``ends``
    are polls of the brokers. If two samples are more than ``longest`` apart, the time between them is unknown. So no
    age depends on a sample that is more than ``longest`` later than its event.
    """
    of_worst = {"topic": "max_lag_topic", "partition": "max_lag_partition", "committed_offset": "max_lag_committed"}
    asking = events.where(is_inexact()).withColumns(
        {
            **{name: F.col(column) for name, column in of_worst.items()},
            "at_ms": F.col("observed_at_ms"),
            "until_ms": F.col("received_at_ms") + longest // timedelta(milliseconds=1),
            "refresh_ms": F.when(F.col("source") == Source.KAFKA.value, 0).otherwise(REFRESH_MS),
        }
    )
    logs = asking.select(*_LOG_OF_DAY).distinct()
    # Some events do not list their max-lag partition, so add these partitions as rows of ``partitions``.
    of_listed = {"topic": "max_lag_topic", "partition": "max_lag_partition", "end_offset": "max_lag_committed"}
    listed = (F.col(column).alias(name) for name, column in {**of_listed, "current_lag": "max_lag"}.items())
    worst = seen.select("cluster", "day", "observed_at", *listed)
    judged = partitions.unionByName(worst, allowMissingColumns=True)
    of_logs = all_samples(ends, judged).join(F.broadcast(logs), on=list(_LOG_OF_DAY), how="left_semi")
    in_time = sample_spans(_agreeing(of_logs), longest)
    aged = age_from_samples(asking, in_time)
    is_better = (F.col("age.kind") == _EXACT) | (F.col("lag_seconds").isNull() & F.col("age").isNotNull())
    replaced = aged.withColumns(
        {
            "lag_seconds": F.when(is_better, F.col("age.seconds")).otherwise(F.col("lag_seconds")),
            "lag_seconds_kind": F.when(is_better, F.col("age.kind")).otherwise(F.col("lag_seconds_kind")),
        }
    )
    return events.where(~is_inexact()).unionByName(replaced.select(*events.columns))


def is_inexact() -> Column:
    """Whether the max-lag partition's lag in seconds is extrapolated or a lower bound.

    Events of ``karrot pipeline offsets`` do not say how the lag is known. The lag is extrapolated if the committed
    offset is below the first log end that the verdict knows, as in `karrot.signals`.
    """
    below = (F.col("max_lag_committed") < F.col("max_lag_first_end")) & (F.col("max_lag") > 0)
    is_of_worst = (F.col("lag_seconds_topic") == F.col("max_lag_topic")) & (
        F.col("lag_seconds_partition") == F.col("max_lag_partition")
    )
    is_exact = F.col("lag_seconds_kind") == _EXACT
    inexact = F.when(F.col("lag_seconds_kind").isNull(), below).otherwise(~is_exact & is_of_worst)
    return F.coalesce(inexact, F.lit(False))
