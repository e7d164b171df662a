"""Makes every table from the raw segments of an archive, or from commits, log ends and members."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.pipeline.expected_tables.archive_lines import Event, events_rows, partitions_rows, read_archive
from support.pipeline.expected_tables.calendar_ms import day_text
from support.pipeline.expected_tables.commits import Assignment, Commit, rebalances
from support.pipeline.expected_tables.groups_of_commits import (
    GroupDay,
    group_day,
    held_rows,
    lag_minute_of_commits,
    listings_of_commits,
    spread_of_commits,
    topic_sizes,
)
from support.pipeline.expected_tables.lag_of_commits import partition_lag_minute
from support.pipeline.expected_tables.log_ends import LogEndRow, LogEnds
from support.pipeline.expected_tables.minutes_of_events import lag_minute, slo_daily, worst_partitions
from support.pipeline.expected_tables.spread import listings_of, rates_minute, skew_minute
from support.pipeline.expected_tables.verdicts import incidents, status_intervals, verdict_runs

Rows = list[dict[str, Any]]

_OF_LAG = (
    "lag_min",
    "lag_max",
    "lag_avg",
    "lag_last",
    "lag_seconds_max",
    "coverage",
    "uncommitted",
    "complete",
    "lag_seconds_kind",
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of the step ``derive``, with its defaults."""

    silence_ms: int = 300_000
    longest_ms: int = 600_000
    target_seconds: float = 60.0
    objective: float = 0.99


@dataclass(frozen=True, slots=True)
class Records:
    """What ``karrot pipeline offsets`` wrote: commits, log ends, and the records of the groups' metadata."""

    commits: Sequence[Commit] = ()
    ends: Sequence[LogEndRow] = ()
    assignments: Sequence[Assignment] = ()


def tables_of_archive(archive: Path, rules: Rules) -> dict[str, Rows]:
    """Return the rows of every table that the pipeline makes from an archive, by the name of the table."""
    read = read_archive(archive)
    streamed = {
        "events": events_rows(read.events),
        "partitions": partitions_rows(read.events),
        "quarantine": read.quarantine,
    }
    return streamed | derived_tables(read.events, Records(), rules)


def derived_tables(events: list[Event], records: Records, rules: Rules) -> dict[str, Rows]:
    """Return the rows of every derived table, by the name of the table."""
    listings = listings_of(events)
    heard = {(*one[:2], day_text(one.at_ms)) for one in listings}
    samples = LogEnds(events, records.ends, with_worst=False)
    partition_lags = partition_lag_minute(records.commits, samples, records.assignments, rules.longest_ms)
    lags = [row for row in partition_lags if group_day(row) not in heard]
    held, sizes = held_rows(lags, rules.longest_ms), topic_sizes(lags, records.ends, samples)

    hindsight = LogEnds(events, records.ends, with_worst=True)
    of_events = lag_minute(events, hindsight, rules.longest_ms)
    minutes = _merged(of_events, *lag_minute_of_commits(held, sizes))
    worst = worst_partitions(events, [one.row for several in held.values() for one in several])
    return {
        "lag_minute": minutes,
        "rates_minute": rates_minute([*listings, *listings_of_commits(lags)], rules.longest_ms),
        "skew_minute": skew_minute(listings) + skew_minute(spread_of_commits(held), sizes),
        "slo_daily": slo_daily(minutes, worst, rules.target_seconds, rules.objective),
        "verdict_runs": verdict_runs(events, rules.silence_ms),
        "incidents": incidents(events, rules.silence_ms),
        "status_intervals": status_intervals(events, rules.silence_ms),
        "partition_lag_minute": partition_lags,
        "rebalances": rebalances(records.assignments),
    }


def _merged(of_events: Rows, of_commits: Rows, mostly_whole: set[GroupDay]) -> Rows:
    """Take the verdicts from events, and the lag from commits.

    If a group has events and its commits do not give its whole lag in most minutes, the lag comes from events too.
    """
    with_events = set(map(group_day, of_events))
    chosen = [row for row in of_commits if group_day(row) in mostly_whole or group_day(row) not in with_events]
    from_commits = set(map(group_day, chosen))
    rows = defaultdict[tuple[str, str, int], Rows](list)
    for row in of_events:
        lagless = dict.fromkeys(_OF_LAG) if group_day(row) in from_commits else {}
        rows[_place(row)].append(row | lagless)
    for row in chosen:
        rows[_place(row)].append(row)
    return [_joined(several) for several in rows.values()]


def _joined(several: Rows) -> dict[str, Any]:
    """Join the row of events, which comes first, and the row of commits."""
    if len(several) == 1:
        return several[0]
    heard, measured = several
    return heard | {name: measured[name] for name in _OF_LAG}


def _place(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["cluster"], row["consumer"], row["minute"]
