"""Minutes and days from events: ``lag_minute``, ``rates_minute``, ``skew_minute`` and ``slo_daily``."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from support.pipeline.expected_tables.archive_lines import Event, Listed, first_log_end, lag
from support.pipeline.expected_tables.calendar_ms import day_of, day_text, minute_of
from support.pipeline.expected_tables.log_ends import Log, LogEnds, age_at, life_at, refresh_of
from support.pipeline.expected_tables.verdicts import SEVERITY

Rows = list[dict[str, Any]]


# --- lag_minute ---


def lag_minute(events: Iterable[Event], samples: LogEnds, longest_ms: int) -> Rows:
    """Make a row for each group and minute in which an event was received."""
    minutes = defaultdict[tuple[str, str, int], list[Event]](list)
    for event in sorted(events, key=lambda event: event.arrival):
        minutes[(*event.group, minute_of(event.received_ms))].append(event)
    return [
        {"cluster": cluster, "consumer": consumer, "minute": minute, "day": day_text(minute)}
        | _lag_columns(of_minute, samples, longest_ms)
        for (cluster, consumer, minute), of_minute in minutes.items()
    ]


def _lag_columns(events: list[Event], samples: LogEnds, longest_ms: int) -> dict[str, Any]:
    lags = [event.total_lag for event in events if event.total_lag is not None]
    ages = (seconds_with_hindsight(event, samples, longest_ms) for event in events)
    seconds = [age for age in ages if age is not None]
    kinds = {kind for one, kind in seconds}
    completes = [event.columns["complete"] for event in events if event.columns.get("complete") is not None]
    known = [event.status for event in events if event.status in SEVERITY]
    return {
        "count": len(events),
        "lag_min": min(lags, default=None),
        "lag_max": max(lags, default=None),
        "lag_avg": sum(lags) / len(lags) if lags else None,
        "lag_last": lags[-1] if lags else None,
        "lag_seconds_max": max((one for one, _ in seconds), default=None),
        "lag_seconds_kind": next((kind for kind in ("at_least", "extrapolated", "exact") if kind in kinds), None),
        "complete": min(completes, default=None),
        "worst_status": max(known, key=SEVERITY.__getitem__, default=None),
        "not_ok": sum(SEVERITY[status] > SEVERITY["OK"] for status in known),
        "coverage": None,
        "uncommitted": None,
    }


def seconds_with_hindsight(event: Event, samples: LogEnds, longest_ms: int) -> tuple[float, str | None] | None:
    """Return an event's lag in seconds and its kind: the service's, or an exact one from samples of the same day."""
    seconds, worst, now_ms = event.columns.get("lag_seconds"), event.worst, event.observed_ms
    told = None if seconds is None else (seconds, event.columns.get("lag_seconds_kind"))
    if worst is None or worst.committed is None or now_ms is None or not _is_inexact(event, worst):
        return told
    of_log = samples.of_days(Log(event.cluster, worst.topic, worst.partition), day_of(event.received_ms))
    refresh_ms = refresh_of(event.columns["source"])
    until_ms = event.received_ms + longest_ms
    age = age_at(life_at(of_log, now_ms), worst.committed, now_ms, refresh_ms, longest_ms, until_ms=until_ms)
    return told if age is None or (told is not None and age.kind != "exact") else (age.seconds, age.kind)


def _is_inexact(event: Event, worst: Listed) -> bool:
    """Whether the lag in seconds of the max-lag partition is extrapolated, a lower bound or unknown."""
    columns = event.columns
    if (kind := columns.get("lag_seconds_kind")) is None:
        first_end = first_log_end(worst.columns)
        is_known = worst.committed is not None and first_end is not None and lag(columns.get("max_lag"))
        return bool(is_known) and (worst.committed or 0) < (first_end or 0)
    place = columns.get("lag_seconds_topic"), columns.get("lag_seconds_partition")
    return kind != "exact" and place == (worst.topic, worst.partition)


# --- slo_daily ---


def worst_partitions(
    events: Iterable[Event], lags: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str, str], tuple[int, str, int]]:
    """Return the partition with the largest lag of each group and day, listed in an event or known from commits."""
    worst = dict[tuple[str, str, str], tuple[int, str, int]]()

    def see(place: tuple[str, str, str], behind: int | None, topic: str, partition: int) -> None:
        if behind:
            worst[place] = max(worst.get(place, (0, "", 0)), (behind, topic, partition))

    for event in events:
        for one in event.partitions:
            see((*event.group, day_text(event.received_ms)), one.lag, one.topic, one.partition)
    for row in lags:
        see((row["cluster"], row["consumer"], row["day"]), row["lag"], row["topic"], row["partition"])
    return worst


def slo_daily(
    minutes: Iterable[Mapping[str, Any]],
    worst: Mapping[tuple[str, str, str], tuple[int, str, int]],
    target: float,
    objective: float,
) -> Rows:
    """Make a row for each group and day. A minute counts if a status was known in it, or if its lag is from commits."""
    days = defaultdict[tuple[str, str, str], list[Mapping[str, Any]]](list)
    for row in minutes:
        if row["worst_status"] not in (None, "NOTFOUND") or row["coverage"] is not None:
            days[row["cluster"], row["consumer"], row["day"]].append(row)
    return [
        {"cluster": place[0], "consumer": place[1], "day": place[2], "worst_partition": _name(worst.get(place))}
        | {"target_seconds": target, "objective": objective}
        | _slo_columns(rows, target, objective)
        for place, rows in days.items()
    ]


def _name(worst: tuple[int, str, int] | None) -> str | None:
    return f"{worst[1]}/{worst[2]}" if worst else None


def _slo_columns(minutes: Sequence[Mapping[str, Any]], target: float, objective: float) -> dict[str, Any]:
    measured = [
        row["lag_seconds_max"]
        for row in minutes
        if row["lag_seconds_max"] is not None
        and (row["lag_seconds_kind"] != "at_least" or row["lag_seconds_max"] > target)
    ]
    within = sum(seconds <= target for seconds in measured)
    beyond = len(measured) - within
    statuses = [row["worst_status"] for row in minutes if row["worst_status"] not in (None, "NOTFOUND")]
    return {
        "minutes_seen": len(statuses),
        "minutes_ok": statuses.count("OK"),
        "minutes_measured": len(measured),
        "minutes_within_target": within,
        "budget_minutes": len(measured) * (1 - objective),
        "burn_rate": beyond / len(measured) / (1 - objective) if measured else None,
    }
