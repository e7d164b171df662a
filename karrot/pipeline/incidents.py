"""``incidents``: the rules of `karrot.eventlog.incidents`, which walk from event to event, said of whole columns.

An incident is opened by the first event with a new id and ended by its close, by another new id, by deletion, by
recovery without its close, or by silence. Verdicts without an id (Burrow's REST API, Kafka) belong to the incident that
is open. Where none is, they make one of their own, until an id gives it a name or silence ends it. Ids that were seen
before open nothing: the service remembers the newest eight of a group, the tables all.
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.schemas import INCIDENTS, columns_of, with_day
from karrot.pipeline.statuses import GROUP, in_order, severity, status_named

__all__ = ["incidents"]

_OBSERVATION, _INCIDENT, _CLOSE, _DELETED = "observation", "incident", "close", "deleted"
_KIND = F.col  # columns below are named for what they hold


def incidents(runs: DataFrame, *, silence: timedelta, as_of: datetime) -> DataFrame:
    """``incidents`` of all the ``runs`` of their groups; an incident's day is the one on which it started.

    ``as_of`` is the newest event of all: an incident last heard of more than ``silence`` before it has ended, at the
    moment when the service would have stopped to show it.
    """
    walked = _with_next_turn(_with_turns(in_order(runs), silence))
    members = _with_ends(_with_members(walked), silence, as_of)
    return (
        members.where(F.col("member").isNotNull())
        .groupBy(*GROUP, "member")
        .agg(
            F.coalesce(F.max(F.when(F.col("fresh"), F.col("incident_start"))), F.min("first_at")).alias("started_at"),
            F.max("end").alias("end"),
            status_named(F.max(F.when(_is(_INCIDENT), severity("status")))).alias("worst_status"),
            F.max(F.when(_is(_INCIDENT), F.col("peak_lag"))).alias("peak_lag"),
            F.sum("events").alias("events"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("topics")))).alias("topics"),
        )
        .select("*", "member.incident_id", "end.ended_at", "end.ended_by", F.to_date("started_at").alias("day"))
        .select(*columns_of(with_day(INCIDENTS)))
    )
