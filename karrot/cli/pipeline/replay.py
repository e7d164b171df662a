"""``karrot pipeline replay``: judges recorded commits by several sets of Burrow's rules, and compares the results."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import Refused, valid
from karrot.cli.options import json_option, reads
from karrot.cli.pipeline.job_errors import JobCommand
from karrot.cli.pipeline.spark_options import read_rules, spark_options, started
from karrot.cli.print_table import UNKNOWN, Column, PrintedTable, json_line, print_lines, safe
from karrot.text import count, counted, duration, iso_ms, to_minute

if TYPE_CHECKING:
    from karrot.event import GroupKey
    from karrot.pipeline.replay.incident_comparison import ReplayedIncident, RuleSetOutcome, StatusRun
    from karrot.pipeline.replay.job import Replayed


_DAY_S = 86_400
_MOST_GROUPS = 20


def _read_moment(_context: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    from karrot.history.time_ranges import parse_time

    return valid(lambda: parse_time(text, datetime.now(UTC))) if text else None


def _span(least_s: int, most_s: int) -> Any:
    return reads(lambda types: types.duration(least_s, most_s))


def _delay(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


_RULE_SETS = (
    Column("RULES", "name"),
    Column("INTERVALS", "intervals", is_number=True),
    Column("ALLOWED-LAG", "allowed_lag", count, is_number=True),
    Column("MIN-DISTANCE", "min_distance", "{}s".format, is_number=True),
    Column("COMPLETE", "minimum_complete", "{:g}".format, is_number=True),
    Column("INCIDENTS", "incident_count", count, is_number=True),
    Column("FLAPS", "flaps", count, is_number=True),
    Column("MINUTES-NOT-OK", "minutes_not_ok", count, is_number=True),
    Column(
        "FOUND",
        "delay_seconds",
        lambda delays: f"{len(delays) - delays.count(None)} of {len(delays)}" if delays else UNKNOWN,
        is_number=True,
    ),
    Column("DELAY", "delay_seconds_median", _delay, is_number=True),
    Column(
        "LATEST",
        "delay_seconds",
        lambda delays: _delay(max((each for each in delays if each is not None), default=None)),
        is_number=True,
    ),
)
_GROUPS = (
    Column("CLUSTER", "cluster"),
    Column("GROUP", "group"),
    Column("STOOD-STILL", "standstills", is_number=True),
)


@click.command(cls=JobCommand, short_help="Judge the recorded commits by several sets of Burrow's rules.")
@spark_options
@click.option(
    "--rules",
    "rule_sets",
    multiple=True,
    callback=read_rules,
    metavar="[NAME:]RULE=VALUE,...",
    help="A set of rules: intervals, allowed_lag (messages), min_distance (60s, 5m), minimum_complete (0 to 1). "
    "Repeatable: the other sets are compared with the first.  [default: Burrow's defaults]",
)
@click.option(
    "--from",
    "first",
    callback=_read_moment,
    help="Start: a time in ISO 8601 (UTC), or an age such as 90m, 24h or 7d.  [default: the first sample of log ends]",
)
@click.option(
    "--to",
    "last",
    callback=_read_moment,
    help="End, in the same form as --from.  [default: the last sample of log ends]",
)
@click.option("--cluster", "clusters", multiple=True, help="Replay only this cluster. Repeatable.")
@click.option("--group", "groups", multiple=True, help="Replay only this group. Repeatable.")
@click.option(
    "--every",
    default="60s",
    callback=_span(1, _DAY_S),
    help="How often to judge. Use the interval of Burrow's notifier.",
)
@click.option(
    "--expire-group",
    default="7d",
    callback=_span(60, 3650 * _DAY_S),
    help="Burrow's expire-group: forget a group after this time without commits.",
)
@click.option(
    "--stale-for",
    "stood_still",
    default="2m",
    callback=_span(1, _DAY_S),
    help="A partition stood still if its committed offset did not move for this time while it had lag.",
)
@click.option(
    "--flap",
    default="30m",
    callback=_span(0, 7 * _DAY_S),
    help="An incident is a flap if it starts within this time after the end of the group's previous incident.",
)
@json_option("Print one line of JSON instead of tables and sentences.")
def replay(**asked: Any) -> None:
    """Judge the commits and log ends in the tables by several sets of Burrow's rules, and compare the results.

    For each set, the command prints four values: the incidents, the flaps (see --flap), the minutes in which groups
    were not OK, and the time until the rules noticed a partition that stood still (see --stale-for).

    The exit code is 1 if there is nothing to replay, and 2 for wrong options or if Spark cannot run here.
    """
    first, last = asked["first"], asked["last"]
    if first and last and first >= last:
        raise Refused(f"--from {to_minute(first)} is not before --to {to_minute(last)}")
    with started("replay", asked) as (spark, tables):
        from karrot.pipeline.replay import job

        request = job.ReplayRequest(**{name: asked[name] for name in job.ReplayRequest.__slots__})
        done = job.replay(spark, tables.together(spark), request)
    print_lines([json_line(replayed_json(done))] if asked["as_json"] else replayed_lines(done))


def replayed_lines(done: "Replayed") -> Iterator[str]:
    """Yield the lines of the result: the replayed period, the rule sets, the most different groups, and a summary."""
    from karrot.pipeline.replay.incident_comparison import sentences

    first, last = (to_minute(datetime.fromtimestamp(epoch_s, UTC)) for epoch_s in (done.span.first, done.span.last))
    yield f"{counted(done.groups, 'group')} from {first} to {last} UTC, judged every {duration(done.span.every)}"
    yield ""
    yield from PrintedTable(_RULE_SETS, [_rule_set_fields(one) for one in done.outcomes]).lines()
    yield ""
    yield from _groups_table(done)
    yield from map(safe, sentences(done.outcomes))


def _groups_table(done: "Replayed") -> Iterator[str]:
    """Yield a row for each group with the time in incidents of each rule set. The most different groups come first."""
    stood = Counter(each.group for each in done.standstills)
    lasted_ms: dict[GroupKey, list[list[int]]] = {group: [[] for _ in done.outcomes] for group in stood}
    for number, one in enumerate(done.outcomes):
        for each in one.incidents:
            of_sets = lasted_ms.setdefault(each.group, [[] for _ in done.outcomes])
            of_sets[number].append(each.to_ms - each.from_ms)

    def order(group: "GroupKey") -> tuple[Any, ...]:
        totals = [*map(sum, lasted_ms[group])]
        return min(totals) - max(totals), -max(totals), group

    rows = list[dict[str, Any]]()
    for group in sorted(lasted_ms, key=order)[:_MOST_GROUPS]:
        shown = (f"{len(each)} ({sum(each) / 60_000:,.0f} min)" if each else "0" for each in lasted_ms[group])
        sets = {f"set {number}": text for number, text in enumerate(shown)}
        rows.append({"cluster": group.cluster, "group": group.consumer, "standstills": stood[group], **sets})
    if not rows:
        return
    names = [safe(one.rules.name).upper() for one in done.outcomes]
    columns = [Column(name, f"set {number}", str, is_number=True) for number, name in enumerate(names)]
    yield from PrintedTable([*_GROUPS, *columns], rows).lines()
    if len(lasted_ms) > _MOST_GROUPS:
        yield f"and {len(lasted_ms) - _MOST_GROUPS} more groups (see --json)"
    yield ""


def replayed_json(done: "Replayed") -> dict[str, Any]:
    """Return the complete result: each rule set's incidents, the stand-stills with their delays, and the summary."""
    from karrot.pipeline.replay.incident_comparison import sentences

    return {
        "from": iso_ms(done.span.first * 1000),
        "to": iso_ms(done.span.last * 1000),
        "every_seconds": done.span.every,
        "groups": done.groups,
        "standstills": [_stretch(each) for each in done.standstills],
        "rule_sets": [
            _rule_set_fields(one)
            | {"incidents": list(map(_incident, one.incidents))}
            | {"not_ok": [_stretch(run) | {"status": run.status} for run in one.runs]}
            for one in done.outcomes
        ],
        "said": list(sentences(done.outcomes)),
    }


def _rule_set_fields(one: "RuleSetOutcome") -> dict[str, Any]:
    return {
        **one.rules._asdict(),
        "incident_count": len(one.incidents),
        "flaps": one.flaps,
        "minutes_not_ok": one.minutes_not_ok,
        "incidents_without_standstill": one.without_standstill,
        "incidents_alone": one.alone,
        "delay_seconds": list(one.delays),
        "delay_seconds_median": one.median_delay,
        "shift_seconds": list(one.shifts),
    }


def _incident(one: "ReplayedIncident") -> dict[str, Any]:
    return _stretch(one) | {
        "to": None if one.is_open else iso_ms(one.to_ms),
        "worst_status": one.worst,
        "is_flap": one.is_flap,
        "stood_still": one.stood_still,
    }


def _stretch(one: "StatusRun | ReplayedIncident") -> dict[str, Any]:
    return {**one.group._asdict(), "from": iso_ms(one.from_ms), "to": iso_ms(one.to_ms)}
