"""The lag, rates and skew of groups whose partitions no event of the day lists in full: from commits."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from support.pipeline.expected_tables.calendar_ms import MINUTE_MS, day_of, day_text
from support.pipeline.expected_tables.log_ends import LogEndRow, LogEnds
from support.pipeline.expected_tables.spread import Listing

Rows = list[dict[str, Any]]
GroupDay = tuple[str, str, str]
"""Cluster, consumer group and day."""


class Held(NamedTuple):
    """A partition's row of ``partition_lag_minute``, held in a minute of its group."""

    minute: int
    row: Mapping[str, Any]


def group_day(row: Mapping[str, Any]) -> GroupDay:
    """Return the group and the day of a row."""
    return row["cluster"], row["consumer"], row["day"]


def held_rows(lags: Iterable[Mapping[str, Any]], longest_ms: int) -> dict[GroupDay, list[Held]]:
    """Return the rows of each group and day: in a minute with a row of any partition, all partitions have one."""
    days = defaultdict[GroupDay, list[Mapping[str, Any]]](list)
    for row in lags:
        days[group_day(row)].append(row)
    found = {}
    for place, rows in days.items():
        partitions = defaultdict[tuple[str, int], list[Mapping[str, Any]]](list)
        for row in sorted(rows, key=lambda row: row["minute"]):
            partitions[row["topic"], row["partition"]].append(row)
        held = []
        for minute in sorted({row["minute"] for row in rows}):
            for of_partition in partitions.values():
                before = [row for row in of_partition if row["minute"] <= minute]
                if before and minute - before[-1]["minute"] < _holds(before[-1], longest_ms):
                    held.append(Held(minute, before[-1]))
        found[place] = held
    return found


def _holds(row: Mapping[str, Any], longest_ms: int) -> int:
    """Return how long a row holds. A deleted offset holds only in its own minute."""
    return MINUTE_MS if row["committed_offset"] is None and row["state"] is None else longest_ms


def topic_sizes(
    lags: Iterable[Mapping[str, Any]],
    ends: Iterable[LogEndRow],
    samples: LogEnds,
) -> dict[tuple[str, str, str, str], int]:
    """Count the partitions of each topic of a group and day that hold messages or were committed on that day."""
    starts = {(day_of(row.sample.at_ms), row.log, row.sample.at_ms): row.start_offset for row in ends}
    full = defaultdict[tuple[str, str, str], set[int]](set)
    for day, log in samples.places():
        seen = samples.of_days(log, day)
        if any(sample.offset > (starts.get((day, log, sample.at_ms)) or 0) for sample in seen):
            full[log.cluster, log.topic, day_text(day)].add(log.partition)
    partitions = defaultdict[tuple[str, str, str, str], set[int]](set)
    for row in lags:
        place = (*group_day(row), row["topic"])
        partitions[place] |= {row["partition"]} | full[row["cluster"], row["topic"], row["day"]]
    return {place: len(numbers) for place, numbers in partitions.items()}


def lag_minute_of_commits(
    held: Mapping[GroupDay, Sequence[Held]], sizes: Mapping[tuple[str, str, str, str], int]
) -> tuple[Rows, set[GroupDay]]:
    """Make rows of ``lag_minute`` from commits. Also return the groups and days whose whole lag is known mostly."""
    rows, mostly_whole = [], set()
    for place, of_day in held.items():
        of_topic = {topic[3]: number for topic, number in sizes.items() if topic[:3] == place}
        minutes = defaultdict[int, list[Mapping[str, Any]]](list)
        for one in of_day:
            minutes[one.minute].append(one.row)
        whole = 0
        for minute, several in minutes.items():
            left = {row["topic"] for row in several if row["state"] == "LEFT"}
            size = sum(number for topic, number in of_topic.items() if topic not in left)
            committed = [row for row in several if row["committed_offset"] is not None and row["topic"] not in left]
            known = [row["lag"] for row in committed if row["lag"] is not None]
            whole += len(known) == sum(row["state"] is None for row in committed)
            coverage = len(known) / size if size else 0.0
            lag = sum(known) if known and sum(known) < 2**63 else None
            seconds = [row["lag_seconds"] for row in committed if row["lag_seconds"] is not None]
            rows.append(
                {
                    **dict(zip(("cluster", "consumer", "day"), place, strict=True)),
                    "minute": minute,
                    "count": 0,
                    **dict.fromkeys(("lag_min", "lag_max", "lag_last"), lag),
                    "lag_avg": None if lag is None else float(lag),
                    "lag_seconds_max": max(seconds, default=None),
                    "worst_status": None,
                    "not_ok": 0,
                    "coverage": coverage,
                    "complete": coverage,
                    "lag_seconds_kind": ("exact" if len(seconds) == size else "at_least") if seconds else None,
                    "uncommitted": size - len(committed),
                }
            )
        if whole * 2 > len(minutes):
            mostly_whole.add(place)
    return rows, mostly_whole


def listings_of_commits(lags: Iterable[Mapping[str, Any]]) -> list[Listing]:
    """Return the samples for ``rates_minute``: with a commit outside of the log, the lag does not give the log end."""
    return [
        _listing(row, row["as_of"])
        for row in lags
        if not row["negative"] and row["lag"] is not None and (row["start_offset"] or 0) <= row["committed_offset"]
    ]


def spread_of_commits(held: Mapping[GroupDay, Sequence[Held]]) -> list[Listing]:
    """Return the rows for ``skew_minute``."""
    return [_listing(one.row, one.minute) for several in held.values() for one in several]


def _listing(row: Mapping[str, Any], at_ms: int) -> Listing:
    return Listing(
        row["cluster"],
        row["consumer"],
        row["topic"],
        row["partition"],
        at_ms,
        row["committed_offset"],
        row["lag"],
        row["owner"],
    )
