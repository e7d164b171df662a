"""``karrot history groups``, ``incidents`` and ``timeseries``: print what happened in a range of time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.history.open_tables import answered, dates_in_words, in_words, named, of_all, one_line, places
from karrot.cli.options import option_set
from karrot.cli.table import UNKNOWN, Column, PrintedTable, cell, json_line, print_lines, safe
from karrot.text import compact_duration, counted_plain, to_minute

if TYPE_CHECKING:
    from karrot.event import DayRange, TimeRange
    from karrot.history.held_days import Days
    from karrot.history.table_queries import History
    from karrot.settings.types import Place


range_options = option_set(
    click.option(
        "--from", "since", default="24h", help="Start: a time in ISO 8601 (UTC), or an age such as 90m, 24h or 7d."
    ),
    click.option("--to", "until", default="now", help="End, not included. The same form as --from."),
    click.option("--limit", type=click.IntRange(1), help="Show at most this number of rows."),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table."),
)


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """The values of the options that the commands about a range of time share."""

    tables: "Place"
    span: "TimeRange"
    passed: "TimeRange"
    """The part of the span that has passed. Later days do not count as missing."""
    cluster: str | None
    limit: int | None
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Remove the shared options from ``given`` and read them."""
        from karrot.event import TimeRange
        from karrot.history.moments import moment

        now = datetime.now(UTC)
        span = valid(lambda: TimeRange(moment(given.pop("since"), now), moment(given.pop("until"), now)))
        passed = TimeRange(span.start, min(span.end, now)) if span.start < now else span
        return cls(given.pop("tables"), span, passed, given.pop("cluster"), given.pop("limit"), given.pop("as_json"))


def nothing_known(request: RangeRequest, history: "History", what: str, group: str | None, table: str) -> NotDone:
    """The error for a range of time without data. Its message gives the reason and the days that the tables have."""
    whom = named(request.cluster, group)
    days, its_days = history.days(table), history.days(table, cluster=request.cluster, group=group)
    if table == "incidents" and (lacking := history.lacking(request.passed, cluster=request.cluster, group=group)):
        there = lacks_incidents(request, lacking)
    elif its_days:
        there = f"{request.tables} has {dates_in_words(its_days)}"
    elif not history.knows(cluster=request.cluster, group=group):
        return NotDone(one_line(f"no data about {whom}: no table in {request.tables} has it, on any day"))
    elif days:
        there = f"{request.tables} has {dates_in_words(days)}, but without {whom}"
    elif table == "incidents":
        there = f"{request.tables} has no day with verdicts that karrot pipeline derive has completed"
    else:
        there = f"{request.tables} has no table {table}"
    span = f"{to_minute(request.span.start)} to {to_minute(request.span.end)} UTC"
    return NotDone(one_line(f"no data about {what} from {span}; {there}"))


def lacks_incidents(request: RangeRequest, lacking: Sequence[date]) -> str:
    """A sentence about days that derive completed but whose incidents are not in the tables, with the remedy."""
    return (
        f"{request.tables}/incidents lacks the incidents of {dates_in_words(lacking)}: copy this table too, "
        "or remove _derived.json and run karrot pipeline derive"
    )


def say_missing(days: "Days", what: str, no_data: str = "no data") -> None:
    """Print the days that the tables lack."""
    if not days.missing:
        return
    missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
    of_days = f"{missing} of {counted_plain(missing + held, 'day')}"
    click.echo(f"karrot: {no_data} about {what} on {in_words(days.missing)} ({of_days})", err=True)


def days_json(days: "Days") -> dict[str, Any]:
    """The days that the tables have and the days that they lack, as ranges."""
    return {"held": day_ranges_json(days.held), "missing": day_ranges_json(days.missing)}


def day_ranges_json(days: "Iterable[DayRange]") -> list[dict[str, str]]:
    """The first and the last day of each range."""
    return [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in days]


_GROUPS = (
    Column("CLUSTER", "cluster", may_be_cut=True, goes=4),
    Column("GROUP", "group", may_be_cut=True),
    Column("STATUS", "status"),
    Column("WORST", "worst_status", goes=3),
    Column("LAG", "lag", is_number=True),
    Column("MAX-LAG", "lag_max", is_number=True),
    Column(
        "MAX-SECONDS",
        "lag_seconds_max",
        lambda seconds: cell(None if seconds is None else round(seconds)),
        is_number=True,
        goes=2,
    ),
    Column("MINUTES", "minutes", is_number=True, goes=1),
    Column("NOT-OK", "minutes_not_ok", is_number=True),
    Column("INCIDENTS", "incidents", is_number=True),
    Column("LAST", "last_at", to_minute, goes=5),
)


@click.command()
@places
@click.option("--group", help="Show only this group.")
@range_options
@click.option(
    "--order",
    type=click.Choice(["name", "lag", "lag_max", "not_ok", "incidents"]),
    default="name",
    help="Sort by name, or by the largest value first.",
)
def groups(group: str | None, order: str, **given: Any) -> None:
    """List the groups with their lag, minutes not OK and incidents in a range of time.

    If some days, or the incidents of some days, are missing in the tables, the command names these days on standard
    error, and in the field "days" of --json.
    """
    from karrot.event import Status
    from karrot.history.held_days import day_ranges
    from karrot.history.table_queries import GroupOrder

    request = RangeRequest.of(given)
    whom = named(request.cluster, group)
    with answered(request.tables) as history:
        # Ask for these days first. If derive finishes a day before the next query, the warning still names that day.
        uncounted = list(day_ranges(history.uncounted(request.span, cluster=request.cluster, group=group)))
        found = history.groups(request.span, cluster=request.cluster, group=group, order=GroupOrder(order))
        if not found:
            raise nothing_known(request, history, whom, group, "lag_minute")
        days = history.held(request.passed, "lag_minute", cluster=request.cluster, group=group)
    table = PrintedTable(_GROUPS, [asdict(each) for each in found[: request.limit]])
    if request.as_json:
        missing = {"incidents_missing": day_ranges_json(uncounted)} if uncounted else {}
        click.echo(json_line({"groups": table, "days": days_json(days) | missing}))
        return
    table.print_text()
    worst = Counter(each.worst_status for each in found)
    tally = ", ".join(f"{worst[status.name]} {status.name}" for status in reversed(Status) if status.name in worst)
    click.echo(of_all(found, "group", request.limit) + (f"; at worst {tally}" if tally else ""))
    say_missing(days, whom)
    if uncounted:
        told = "INCIDENTS counts only the other days"
        click.echo(f"karrot: incidents are not known on {in_words(uncounted)}: {told}", err=True)


_LATE = timedelta(seconds=300)
"""If the newest verdict is older than this, the command prints its time. KARROT_STALE_AFTER has the same default."""


def _lasted(row: Mapping[str, Any]) -> str:
    if row["ended_at"] is None:
        return UNKNOWN
    return compact_duration((row["ended_at"] - row["started_at"]).total_seconds())


_INCIDENTS = (
    Column("STARTED", "started_at", to_minute),
    Column("LASTED", text=_lasted, is_number=True),
    Column("CLUSTER", "cluster", may_be_cut=True, goes=4),
    Column("GROUP", "group", may_be_cut=True),
    Column("WORST", "worst_status"),
    Column("PEAK-LAG", "peak_lag", is_number=True),
    Column("ENDED-BY", "ended_by", lambda by: safe(by or "open")),
    Column("EVENTS", "events", is_number=True, goes=2),
    Column("TOPICS", "topics", lambda topics: ", ".join(map(safe, topics)) or UNKNOWN, may_be_cut=True, goes=3),
    Column("INCIDENT", "incident_id", may_be_cut=True, goes=1),
)


@click.command()
@places
@click.option("--group", help="Show only this group.")
@range_options
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest", "peak_lag", "longest"]),
    default="newest",
    help="The order of the incidents.",
)
def incidents(group: str | None, order: str, **given: Any) -> None:
    """List the incidents in a range of time, including the incidents that are still open.

    The exit code is 0 if the tables have verdicts from that time, even if there was no incident. It is 1 if the
    tables have no verdicts from that time, or no verdicts on the requested group or cluster. If some days are missing
    in the tables, the command names these days on standard error, and in the field "days" of --json.
    """
    from karrot.history.table_queries import IncidentOrder

    request = RangeRequest.of(given)
    what = f"incidents of {named(request.cluster, group)}"
    with answered(request.tables) as history:
        # Ask for the days first. A day that derive adds later then counts as missing, not as a day without incidents.
        days = history.held(request.passed, "incidents", cluster=request.cluster, group=group)
        found = history.incidents(request.span, cluster=request.cluster, group=group, order=IncidentOrder(order))
        if not (found or days.held):
            raise nothing_known(request, history, what, group, "incidents")
        newest = None
        if days.held:
            newest = history.newest_verdict(days.held[-1].last, cluster=request.cluster, group=group)
        lacking = history.lacking(request.passed, cluster=request.cluster, group=group) if days.missing else ()
    table = PrintedTable(_INCIDENTS, [each._asdict() for each in found[: request.limit]])
    if request.as_json:
        click.echo(json_line({"incidents": table, "days": days_json(days), "newest_verdict": newest}))
        return
    table.print_text()
    still_open = sum(each.ended_at is None for each in found)
    click.echo(of_all(found, "incident", request.limit) + (f", {still_open} open" if still_open else ""))
    # An incident that began on an earlier day can continue into the missing days.
    say_missing(days, what, "no more data" if found else "no data")
    if lacking:
        click.echo(f"karrot: {one_line(lacks_incidents(request, lacking))}", err=True)
    if newest is not None:
        _say_newest(request, days, newest, what, "no more data" if found else "no data")


def _say_newest(request: RangeRequest, days: "Days", newest: datetime, what: str, no_data: str) -> None:
    """Print the time of the newest verdict if this time is long before the end of the days in the tables."""
    after_held = datetime.combine(days.held[-1].last + timedelta(days=1), time(), UTC)
    if min(request.passed.end, after_held) - newest <= _LATE:
        return
    is_before = newest < request.span.start
    after = ", before the requested time" if is_before else f"; {no_data} about {what} after it"
    click.echo(f"karrot: the newest verdict is from {to_minute(newest)} UTC{after}", err=True)


def _steps(_context: click.Context, _option: click.Parameter, text: str) -> Any:
    from karrot.history.moments import granularity

    return valid(partial(granularity, text))


def _metrics(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of metrics. A comma separates names in one option. Keep each name once."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or ("lag",)


@click.command()
@places
@click.option("--group", required=True, help="The consumer group.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_metrics,
    metavar="NAME[,...]",
    help="Names of metrics, listed in docs/history.md. Repeatable.  [default: lag]",
)
@click.option(
    "--granularity",
    "step",
    default="1m",
    callback=_steps,
    help="Length of a step in whole minutes, such as 1m, 5m, 1h or 1d.",
)
@click.option("--topic", help="For metrics of partitions: use only this topic.")
@click.option("--partition", type=click.IntRange(0), help="With --topic: use only this partition.")
@range_options
@click.option(
    "--order",
    type=click.Choice(["asc", "desc"]),
    help="Order of the rows by time.  [default: asc; desc if all metrics are offsets]",
)
def timeseries(group: str, metrics: tuple[str, ...], step: Any, order: str | None, **given: Any) -> None:
    """Print metrics of a group over time, one line for each step.

    A step without data about the group is left out. An unknown value is a dash, never a zero.
    """
    from karrot.history.time_series import METRICS, reads_newest_first

    parts = {name: given[name] for name in ("topic", "partition") if given[name] is not None}
    if list(parts) == ["partition"]:
        raise Refused("--partition needs --topic")
    request = RangeRequest.of(given)
    what = f"{', '.join(metrics)} of {named(request.cluster, group)}"
    with answered(request.tables) as history:
        series = history.timeseries(
            group,
            request.span,
            cluster=request.cluster,
            metrics=metrics,
            granularity=step,
            parts=parts,
            newest_first=order == "desc" if order else reads_newest_first(metrics),
            limit=request.limit,
        )
        tables = [METRICS[name].table for name in metrics]
        if not series.points:
            raise nothing_known(request, history, what, group, tables[0])
        days = history.held(request.passed, *tables, cluster=request.cluster, group=group)
    columns = [Column("TIME", "at", to_minute)]
    columns += [Column(name.upper().replace("_", "-"), name, is_number=True) for name in series.metrics]
    table = PrintedTable(
        columns, [{"at": at} | dict(zip(series.metrics, values, strict=True)) for at, values in series.points]
    )
    if request.as_json:
        about = {"cluster": series.cluster, "group": series.group}
        seconds = {"granularity_seconds": series.granularity // timedelta(seconds=1)}
        click.echo(json_line({**about, **seconds, "points": table, "days": days_json(days)}))
        return
    print_lines(table.lines())
    say_missing(days, what)
