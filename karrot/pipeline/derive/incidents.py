"""Derives the table ``incidents``: the rules of `karrot.eventlog.next_group_state`, written for whole columns.

- The first event with a new id opens an incident.
- The incident ends with its close, another new id, the group's deletion, a recovery without a close, or silence.
- Verdicts without an id (from Burrow's REST API or from Kafka) belong to the open incident. If no incident is open,
  they make an incident without an id. This incident lasts until an event gives it an id, or until it ends.
- An id that was seen before opens no incident. The service knows a group's newest eight ids. The tables know all ids
  since the runs from which they are made, and 64 ids from before.

The runs can begin with a `summary_runs` row for each group. This row stands for all earlier runs of the group: it is
the open incident, or an observation, and has the ids that were seen.
"""

from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.derive.status_intervals import in_order, severity, silent_before, status_named
from karrot.pipeline.schemas_and_conversions import GROUP, INCIDENTS, VERDICT_SUMMARIES, columns_of, with_day

_OBSERVATION, _INCIDENT, _CLOSE, _DELETED = "observation", "incident", "close", "deleted"
_ENDING = (_OBSERVATION, _CLOSE, _DELETED)
_KNOWN_IDS = 64

SUMMARY_RUNS = with_day(VERDICT_SUMMARIES)
"""The columns of runs that can begin with a summary."""


def incidents(runs: DataFrame, *, silence: timedelta, as_of: datetime) -> DataFrame:
    """Make ``incidents`` from ``runs`` of the groups. An incident belongs to the day on which it started.

    ``runs`` have the columns of `SUMMARY_RUNS`, and are all runs of a group, or a summary and all later runs.

    ``as_of`` is the time of the newest event of all groups. If a group's last event is more than ``silence`` before
    ``as_of``, its open incident ended ``silence`` after that event: the service then stops showing it. Lag, status and
    topics come from the incident's verdicts worse than OK. ``events`` counts a close once, even if it was repeated.
    """
    members = _with_ends(_with_members(runs, silence), silence, as_of)
    return (
        members.where(F.col("member").isNotNull())
        .groupBy(*GROUP, "member")
        .agg(
            F.coalesce(F.max(F.when(F.col("fresh"), F.col("incident_start"))), F.min("first_at")).alias("started_at"),
            F.max("end").alias("end"),
            status_named(F.max(F.when(_is(_INCIDENT), severity("status")))).alias("worst_status"),
            F.max(F.when(_is(_INCIDENT), F.col("peak_lag"))).alias("peak_lag"),
            F.sum(F.when(_is(_CLOSE), 1).otherwise(F.col("events"))).alias("events"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list(F.when(_is(_INCIDENT), F.col("topics")))))).alias(
                "topics"
            ),
        )
        .select("*", "member.incident_id", "end.ended_at", "end.ended_by", F.to_date("started_at").alias("day"))
        .select(*columns_of(with_day(INCIDENTS)))
    )


def without_summary(runs: DataFrame) -> DataFrame:
    """Give rows of ``verdict_runs`` the columns of `SUMMARY_RUNS`."""
    return runs.withColumn("known_ids", F.lit(None).cast("array<string>"))


def summary_runs(runs: DataFrame, *, silence: timedelta, day: date) -> DataFrame:
    """Make one row per group that stands for all its ``runs``, which are before ``day``. See `SUMMARY_RUNS`.

    If an incident is open after the runs, the row has its first verdict, its worst status, its peak lag, its topics and
    its number of events. `incidents` takes the row for the first run of this incident.
    """
    group = Window.partitionBy(*GROUP)
    last = F.max_by(F.struct("open_id", "stretch", "silences"), F.struct("day", "run")).over(group)
    current = F.when(F.col("last.open_id") != "", _member("last.open_id")).otherwise(
        _member(None, "last.stretch", "last.silences")
    )
    members = _with_members(runs, silence).withColumn("last", last)
    is_open = F.col("member").isNotNull() & F.col("member").eqNullSafe(current)
    members = members.withColumn("is_open", is_open)
    opened = F.when(F.col("is_open") & F.col("fresh"), F.col("incident_start"))
    bad = F.col("is_open") & _is(_INCIDENT)
    fresh_ids = F.collect_list(F.when(F.col("fresh"), F.struct("day", "run", "incident_id")))
    newest_first = F.transform(F.sort_array(fresh_ids, asc=False), lambda each: each.incident_id)
    summed = members.groupBy(*GROUP).agg(
        F.bool_or("is_open").alias("is_open"),
        F.max("last.open_id").alias("open_id"),
        F.coalesce(F.min(F.when(F.col("is_open"), F.col("first_at"))), F.max("last_at")).alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.sum(F.when(F.col("is_open"), F.col("events")).otherwise(0)).alias("events"),
        F.max(opened).alias("incident_start"),
        status_named(F.max(F.when(bad, severity("status")))).alias("status"),
        F.max(F.when(bad, F.col("peak_lag"))).alias("peak_lag"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list(F.when(bad, F.col("topics")))))).alias("topics"),
        newest_first.alias("new_ids"),
        F.coalesce(F.first("known_ids", ignorenulls=True), F.array().cast("array<string>")).alias("old_ids"),
    )
    ids = F.array_remove(F.concat("new_ids", "old_ids"), F.col("open_id"))
    made = {
        "run": F.lit(0).cast("bigint"),
        "kind": F.when(F.col("is_open"), _INCIDENT).otherwise(_OBSERVATION),
        "incident_id": F.when(F.col("open_id") != "", F.col("open_id")),
        "day": F.lit(day - timedelta(days=1)),
        "known_ids": F.slice(ids, 1, _KNOWN_IDS),
    }
    return summed.withColumns(made).select(*columns_of(SUMMARY_RUNS))


def _with_turns(runs: DataFrame, silence: timedelta) -> DataFrame:
    """Add ``open_before`` and ``open_id``: the id of the open incident before and after a run, or an empty string.

    ``fresh`` means that the run's id is new, ``turn`` that the run changes the open incident. ``stretch`` counts the
    turns of a group so far, and ``silences`` its silences. ``next`` is the next turn of the group.
    """
    so_far = Window.partitionBy(*GROUP).orderBy("day", "run")
    place = F.struct("day", "run")
    named = F.when(F.col("kind").isin(_INCIDENT, _CLOSE) & F.col("incident_id").isNotNull(), place)
    first_place = F.min(named).over(Window.partitionBy(*GROUP, "incident_id"))
    known_ids = F.first("known_ids", ignorenulls=True).over(Window.partitionBy(*GROUP))
    is_known = F.coalesce(F.array_contains(known_ids, F.col("incident_id")), F.lit(False))
    opened = F.when(F.col("fresh") & _is(_INCIDENT), F.col("incident_id")).otherwise("")
    open_id = F.last(F.when(F.col("turn"), opened), ignorenulls=True)
    # This window is in reverse order. Spark would compute a frame that reaches to the end again for each row.
    later = Window.partitionBy(*GROUP).orderBy(F.desc("day"), F.desc("run"))
    turn = F.struct("kind", "incident_id", "fresh", "silent", "silences", "heard_at", F.col("first_at").alias("at"))
    next_turn = F.last(F.when(F.col("turn"), turn), ignorenulls=True)
    return (
        runs.withColumn("fresh", F.coalesce(named == first_place, F.lit(False)) & ~is_known)
        .withColumns({"turn": F.col("fresh") | F.col("kind").isin(*_ENDING), "silent": silent_before(silence)})
        .withColumns(
            {
                "stretch": F.count_if("turn").over(so_far),
                "silences": F.count_if("silent").over(so_far),
                "open_id": F.coalesce(open_id.over(so_far), F.lit("")),
            }
        )
        .withColumn("open_before", F.lag("open_id", 1, "").over(so_far))
        .withColumn("next", next_turn.over(later.rowsBetween(Window.unboundedPreceding, -1)))
    )


def _with_members(runs: DataFrame, silence: timedelta) -> DataFrame:
    """Add ``member``: the incident of a run, by its id or, without an id, by ``stretch`` and ``silences``."""
    walked = _with_turns(in_order(runs), silence)
    anonymous = _is(_INCIDENT) & F.col("incident_id").isNull()
    is_open = F.col("open_id") != ""
    own_id = F.col("incident_id").eqNullSafe(F.col("open_id"))
    # A verdict with an id follows, and the group was not silent before it.
    is_named_late = F.coalesce(F.col("next.fresh") & (F.col("next.silences") == F.col("silences")), F.lit(False))
    member = (
        F.when(F.col("fresh"), _member("incident_id"))
        .when(_is(_CLOSE) & (F.col("incident_id") == F.col("open_before")), _member("incident_id"))
        .when(_is(_INCIDENT) & is_open & (own_id | anonymous), _member("open_id"))
        .when(anonymous & ~is_open & is_named_late, _member("next.incident_id"))
        .when(anonymous & ~is_open, _member(None, "stretch", "silences"))
    )
    return walked.withColumn("member", member)


def _with_ends(members: DataFrame, silence: timedelta, as_of: datetime) -> DataFrame:
    """Add ``end`` to each run that opens an incident, and to each run of an incident without an id.

    ``end`` is NULL while the incident lasts.
    """
    group, unbroken = Window.partitionBy(*GROUP), Window.partitionBy(*GROUP, "silences")
    known = members.withColumns(
        {"last_heard": F.max("last_at").over(group), "heard_until": F.max("last_at").over(unbroken)}
    )
    opens, nameless = F.col("fresh"), F.col("member").isNotNull() & F.col("member.incident_id").isNull()
    followed = F.col("next").isNotNull()
    closed = F.col("next.kind").eqNullSafe(_CLOSE) & F.col("next.incident_id").eqNullSafe(F.col("incident_id"))
    in_time = F.col("next.silences").eqNullSafe(F.col("silences"))
    deleted = F.col("next.kind") == _DELETED
    by_turn = F.when(F.col("next.fresh"), "new_incident").when(deleted, _DELETED).otherwise("recovered")

    def silence_after(heard: str) -> Column:
        return _end(F.col(heard) + F.lit(silence), "silence")

    def silence_until_now(heard: str) -> Column:
        return F.when(F.col(heard) + F.lit(silence) < F.lit(as_of), silence_after(heard))

    end = (
        F.when(opens & _is(_CLOSE), _end(F.col("first_at"), _CLOSE))
        .when(opens & closed, _end(F.col("next.at"), _CLOSE))
        .when(opens & F.col("next.silent"), silence_after("next.heard_at"))
        .when((opens & followed) | (nameless & in_time), _end(F.col("next.at"), by_turn))
        .when(opens, silence_until_now("last_heard"))
        .when(nameless & (F.col("heard_until") < F.col("last_heard")), silence_after("heard_until"))
        .when(nameless, silence_until_now("heard_until"))
    )
    return known.withColumn("end", end)


def _end(at: Column, by: Column | str) -> Column:
    return F.struct(at.alias("ended_at"), (F.lit(by) if isinstance(by, str) else by).alias("ended_by"))


def _member(incident_id: str | None, stretch: str | None = None, silences: str | None = None) -> Column:
    """Make the key of an incident: its id or, without an id, its ``stretch`` and ``silences``."""
    named = {"incident_id": (incident_id, "string"), "stretch": (stretch, "long"), "silences": (silences, "long")}
    return F.struct(
        *(
            (F.lit(None) if column is None else F.col(column)).cast(kind).alias(name)
            for name, (column, kind) in named.items()
        )
    )


def _is(kind: str) -> Column:
    return F.col("kind") == kind
