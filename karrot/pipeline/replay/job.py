"""Runs ``karrot pipeline replay``: judges past commits by several sets of Burrow's rules, and compares the sets."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.event import GroupKey, Status
from karrot.pipeline.replay.incident_comparison import RuleSetOutcome, StatusRun, compare
from karrot.pipeline.replay.partition_status_changes import (
    STOOD_STILL,
    ReplayOptions,
    VerdictTimes,
    by_group,
    changes,
    deletions,
    silences,
    statuses,
    together,
)
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import persisted
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

_DAY = timedelta(days=1)


class NothingToReplayError(LookupError):
    """The tables have no commits or no log ends in the requested period. The message names the period in the tables."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request for a replay; durations are in seconds.

    By default, the replay begins at the first log-end sample (``first``) and ends at the last sample (``last``).
    A partition stands still if its offset does not move for ``stood_still``. An incident is a flap if it begins within
    ``flap`` after another incident.
    """

    rule_sets: Sequence[RuleSet]
    first: datetime | None = None
    last: datetime | None = None
    clusters: Collection[str] = ()
    groups: Collection[str] = ()
    every: int = 60
    expire_group: int = 7 * 86_400
    stood_still: int = 120
    flap: int = 1_800


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay. ``groups`` is the number of groups. The first outcome is the baseline's."""

    span: VerdictTimes
    groups: int
    standstills: Sequence[StatusRun]
    outcomes: Sequence[RuleSetOutcome]


def replay(spark: SparkSession, tables: Tables, request: ReplayRequest) -> Replayed:
    """Judge the commits by each rule set, and compare the results. Raises `NothingToReplayError`."""
    found, span = status_runs(spark, tables, request)
    with persisted(found):
        return _result(found, request, span)


def status_runs(spark: SparkSession, tables: Tables, request: ReplayRequest) -> tuple[DataFrame, VerdictTimes]:
    """Return the `statuses` of each group for each rule set, its stand-stills, and the times of the verdicts.

    The replay also reads the day before the first day. Commits of that day fill the windows before the first verdict.
    """
    days = _days(spark, tables, request)
    commits, ends = _chosen(spark, tables, days, request)
    span = _span(ends, request)
    gone = [deletions(_of_groups(tables.read(spark, "members", days=days), request))]
    if span.last - datetime.combine(days[0], time(), UTC).timestamp() > request.expire_group:
        gone.append(silences(commits, span, request.expire_group))
    asked = ReplayOptions(request.rule_sets, span, request.expire_group, request.stood_still * 1000, by_group(*gone))
    return statuses(changes(together(commits, ends), asked), commits, span.last * 1000), span


def _days(spark: SparkSession, tables: Tables, request: ReplayRequest) -> list[date]:
    for name in ("commits", "ends"):
        if not tables.days(spark, name):
            raise NothingToReplayError(f"{tables.directory} has no {name}: run karrot pipeline offsets")
    there = tables.days(spark, "commits")
    first = there[0] if request.first is None else request.first.date() - _DAY
    last = there[-1] if request.last is None else request.last.date()
    days = [day for day in sorted({*there, *tables.days(spark, "ends")}) if first <= day <= last]
    if not days:
        raise NothingToReplayError(
            f"{tables.directory} has no commits from {first} to {last}; it has {there[0]} to {there[-1]}"
        )
    return days


def _chosen(
    spark: SparkSession, tables: Tables, days: Sequence[date], request: ReplayRequest
) -> tuple[DataFrame, DataFrame]:
    commits, ends = _of_groups(tables.read(spark, "commits", days=days), request), tables.read(spark, "ends", days=days)
    if request.groups or request.clusters:
        topics = commits.select("cluster", "topic").distinct()
        ends = ends.join(F.broadcast(topics), on=["cluster", "topic"], how="left_semi")
    return commits, ends


def _of_groups(rows: DataFrame, request: ReplayRequest) -> DataFrame:
    if request.clusters:
        rows = rows.where(F.col("cluster").isin(*request.clusters))
    return rows.where(F.col("consumer").isin(*request.groups)) if request.groups else rows


def _span(ends: DataFrame, request: ReplayRequest) -> VerdictTimes:
    """Return the times of verdicts: multiples of ``every`` from the first to the last log-end sample."""
    ((first_ms, last_ms),) = ends.agg(F.min("observed_at_ms"), F.max("observed_at_ms")).collect()
    if first_ms is None:
        raise NothingToReplayError("the table ends has no log ends of the chosen groups in that time")
    first_s, last_s, every = first_ms / 1000, last_ms / 1000, request.every
    if request.first is not None:
        first_s = max(first_s, request.first.timestamp())
    if request.last is not None:
        last_s = min(last_s, request.last.timestamp())
    span = VerdictTimes(math.ceil(first_s / every) * every, int(last_s // every) * every, every)
    if span.first > span.last:
        raise NothingToReplayError(
            f"that time has no multiple of {every} s with known log ends: choose a longer time or a shorter --every"
        )
    return span


def _result(found: DataFrame, request: ReplayRequest, span: VerdictTimes) -> Replayed:
    bad = found.where(F.col("status") != Status.OK.name)
    runs = defaultdict[int, list[StatusRun]](list)
    for number, cluster, consumer, *rest in bad.sort("cluster", "consumer", "from_ms").collect():
        runs[number].append(StatusRun(GroupKey(cluster, consumer), *rest))
    groups = found.where(F.col("rules") == 0).select("cluster", "consumer").distinct().count()
    if not groups:
        raise NothingToReplayError("the chosen groups have no commits with known log ends in that time")
    of_sets, stood = [runs[number] for number in range(len(request.rule_sets))], runs[STOOD_STILL]
    return Replayed(span, groups, stood, compare(request.rule_sets, of_sets, stood, flap_s=request.flap))
