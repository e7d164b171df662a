"""Lag in time by hindsight: where a verdict could only extrapolate it, it is looked up.

A verdict knows the log end of the last minutes. Whoever is further behind is told as long as the lag would take to
come in at the rate of those minutes, which is hours too much once the producer of a nightly batch is done. The history
knows from other verdicts when the log ended where the group stood.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.derive.as_of_join import Lookup, seconds_behind, with_look
from karrot.pipeline.derive.log_end_samples import looks, spans
from karrot.pipeline.store.shared_columns import LOG

_LOG_OF_DAY: Final = (*LOG, "day")
"""A log on a day alone, so that no day has to be derived again for what another one saw."""

_NEAREST: Final = Lookup("look", _LOG_OF_DAY, "at_ms", "at_ms")
_CROSSED: Final = Lookup("crossed", (*_LOG_OF_DAY, "life"), "end_offset", "committed_offset")


def by_hindsight(events: DataFrame, partitions: DataFrame, ends: DataFrame, *, longest: timedelta) -> DataFrame:
    """``events``, with the ``lag_seconds`` of those that extrapolate it looked up where the day's looks reach so far.

    ``partitions`` are what they list, ``ends`` are polls of the brokers; two looks that are more than ``longest`` apart
    tell nothing of the time between them.
    """
    asking = events.where(_is_extrapolated()).withColumns(_asked())
    logs = asking.select(*_LOG_OF_DAY).distinct()
    told = partitions.unionByName(_worst(events), allowMissingColumns=True)
    seen = looks(_of(logs, ends), _of(logs, told), within=_LOG_OF_DAY)
    in_time = spans(seen, longest, within=_LOG_OF_DAY)
    placed = with_look(asking, in_time, _NEAREST).withColumn("life", F.col("look.life"))
    looked_up = with_look(placed, in_time, _CROSSED).withColumn(
        "lag_seconds", F.coalesce(seconds_behind(), "lag_seconds")
    )
    return events.where(~_is_extrapolated()).unionByName(looked_up.select(*events.columns))


def _is_extrapolated() -> Column:
    """As `karrot.signals` does it: what is committed lies below the first log end that the verdict knows."""
    below = (F.col("max_lag_committed") < F.col("max_lag_first_end")) & (F.col("max_lag") > 0)
    return F.coalesce(below, F.lit(False))


def _asked() -> dict[str, Column]:
    return {
        "topic": F.col("max_lag_topic"),
        "partition": F.col("max_lag_partition"),
        "at_ms": F.col("observed_at_ms"),
        "committed_offset": F.col("max_lag_committed"),
        "lag": F.col("max_lag"),
    }


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
