"""``karrot history groups``, ``timeseries`` and ``incidents``: what there was between two moments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.cells import clock, counted
from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.history.open_tables import answered, named, one_line, places, show, span_of
from karrot.cli.options import put_on

if TYPE_CHECKING:
    from karrot.history import Days, History, TimeRange

__all__ = ["groups", "incidents", "timeseries"]

_LATE = timedelta(seconds=300)
"""How old a verdict may be: as long as one lasts, which is the service's KARROT_STALE_AFTER unless you set it."""

_OPTIONS = (
    click.option(
        "--from", "since", default="24h", show_default=True, help="ISO 8601 (UTC), or so long ago: 90m, 24h, 7d."
    ),
    click.option("--to", "until", default="now", show_default=True, help="Up to, not including; as --from."),
    click.option("--limit", type=click.IntRange(1), help="So many at the most."),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of a table."),
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    return put_on(command, *_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What every one of these commands was asked."""

    tables: Path
    span: "TimeRange"
    passed: "TimeRange"
    """The span as far as it has passed: no table holds days to come, and none is missing."""
    cluster: str | None
    limit: int | None
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Take the common options out of those that were given."""
        from karrot.history import TimeRange

        span, now = span_of(given.pop("since"), given.pop("until")), datetime.now(UTC)
        passed = TimeRange(span.start, min(span.end, now)) if span.start < now else span
        return cls(given.pop("tables"), span, passed, given.pop("cluster"), given.pop("limit"), given.pop("as_json"))


@click.command()
@places
@click.option("--group", help="This group alone.")
@_options
@click.option(
    "--order",
    type=click.Choice(["name", "lag", "lag_max", "not_ok", "incidents"]),
    default="name",
    show_default=True,
    help="By name, or the largest first.",
)
def groups(group: str | None, order: str, **given: Any) -> None:
    """List the groups, with their lag, bad minutes and incidents in that time.

    Days that the tables do not hold are named on standard error, and in "days" of --json. So are days whose incidents
    are not known.
    """
    from karrot.cli.history.groups import groups_json, groups_table, in_words
    from karrot.history import GroupOrder, stretches

    asked = _Asked.of(given)
    whom = named(asked.cluster, group)
    with answered(asked.tables) as history:
        found = history.groups(asked.span, cluster=asked.cluster, group=group, order=GroupOrder(order))
        if not found:
            raise _nothing(asked, history, whom, group, "lag_minute")
        days = history.held(asked.passed, "lag_minute", cluster=asked.cluster, group=group)
        uncounted = list(stretches(history.uncounted(asked.span, cluster=asked.cluster, group=group)))
    if asked.as_json:
        show(groups_json(found[: asked.limit], days, uncounted))
        return
    show(groups_table(found, asked.limit))
    _say_missing(days, whom)
    if uncounted:
        told = "INCIDENTS counts those of the other days"
        click.echo(f"karrot: incidents are not known on {in_words(uncounted)}: {told}", err=True)


def _steps(_context: click.Context, _option: click.Parameter, text: str) -> Any:
    from karrot.history import granularity

    return valid(partial(granularity, text))


def _metrics(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Several may come in one text, between commas; one that is named twice is one."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or ("lag",)


@click.command()
@places
@click.option("--group", required=True, help="The group.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_metrics,
    metavar="NAME[,...]",
    help="Can be given again; docs/history.md lists them.  [default: lag]",
)
@click.option(
    "--granularity", "step", default="1m", show_default=True, callback=_steps, help="Whole minutes: 1m, 5m, 1h, 1d."
)
@click.option("--topic", help="Of this topic alone, for metrics of partitions.")
@click.option("--partition", type=click.IntRange(0), help="Of this partition alone, with --topic.")
@_options
@click.option(
    "--order", type=click.Choice(["asc", "desc"]), help="By time.  [default: asc; desc if all are metrics of offsets]"
)
def timeseries(group: str, metrics: tuple[str, ...], step: Any, order: str | None, **given: Any) -> None:
    """Print how metrics of a group went, step by step.

    A step in which nothing was said of the group is left out, and what was not known is a dash, never a zero.
    """
    from karrot.cli.history.groups import series_json, series_table
    from karrot.history import METRICS, reads_newest_first

    parts = {name: given[name] for name in ("topic", "partition") if given[name] is not None}
    if list(parts) == ["partition"]:
        raise Refused("--partition needs --topic")
    asked = _Asked.of(given)
    what = f"{', '.join(metrics)} of {named(asked.cluster, group)}"
    with answered(asked.tables) as history:
        series = history.timeseries(
            group,
            asked.span,
            cluster=asked.cluster,
            metrics=metrics,
            granularity=step,
            parts=parts,
            newest_first=order == "desc" if order else reads_newest_first(metrics),
            limit=asked.limit,
        )
        tables = [METRICS[name].table for name in metrics]
        if not series.points:
            raise _nothing(asked, history, what, group, tables[0])
        days = history.held(asked.passed, *tables, cluster=asked.cluster, group=group)
    if asked.as_json:
        show(series_json(series, days))
        return
    show(series_table(series))
    _say_missing(days, what)


@click.command()
@places
@click.option("--group", help="This group alone.")
@_options
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest", "peak_lag", "longest"]),
    default="newest",
    show_default=True,
    help="Which comes first.",
)
def incidents(group: str | None, order: str, **given: Any) -> None:
    """List the incidents that lasted in that time, those still open too.

    Exit code 0 if the tables hold verdicts of that time, even if there was no incident. Exit code 1 if they hold none
    of the days, or none on the group or the cluster on these days: nothing is known then. If they lack some of the
    days, these are named on standard error, and in "days" of --json.
    """
    from karrot.cli.history.groups import incidents_json, incidents_table
    from karrot.history import IncidentOrder

    asked = _Asked.of(given)
    what = f"incidents of {named(asked.cluster, group)}"
    with answered(asked.tables) as history:
        # In this order: what derive adds between the two is left out rather than taken for nothing.
        days = history.held(asked.passed, "incidents", cluster=asked.cluster, group=group)
        found = history.incidents(asked.span, cluster=asked.cluster, group=group, order=IncidentOrder(order))
        if not (found or days.held):
            raise _nothing(asked, history, what, group, "incidents")
        newest = None
        if days.held:
            newest = history.newest_verdict(days.held[-1].last, cluster=asked.cluster, group=group)
        lacking = history.lacking(asked.passed, cluster=asked.cluster, group=group) if days.missing else ()
    if asked.as_json:
        show(incidents_json(found[: asked.limit], days, newest))
        return
    show(incidents_table(found, asked.limit))
    # An incident that began on a day before may reach into these.
    _say_missing(days, what, "nothing more" if found else "nothing")
    _say_lacking(asked, lacking)
    if newest is not None:
        _say_newest(asked, days, newest, what, "nothing more" if found else "nothing")


def _nothing(asked: _Asked, history: "History", what: str, group: str | None, table: str) -> NotDone:
    """Why there is no answer, and for which days there is one."""
    from karrot.cli.history.groups import in_words
    from karrot.history import stretches

    whom = named(asked.cluster, group)
    days, its_days = history.days(table), history.days(table, cluster=asked.cluster, group=group)
    if table == "incidents" and (lacking := history.lacking(asked.passed, cluster=asked.cluster, group=group)):
        there = _lacks(asked, lacking)
    elif its_days:
        there = f"{asked.tables} has {in_words(list(stretches(its_days)))}"
    elif not history.knows(cluster=asked.cluster, group=group):
        return NotDone(one_line(f"nothing is known of {whom}: no table of {asked.tables} has it, on any day"))
    elif days:
        there = f"{asked.tables} has {in_words(list(stretches(days)))}, without {whom}"
    elif table == "incidents":
        there = f"{asked.tables} has no day with verdicts that karrot pipeline derive has finished"
    else:
        there = f"{asked.tables} has no table {table}"
    span = f"{clock(asked.span.start)} to {clock(asked.span.end)} UTC"
    return NotDone(one_line(f"nothing is known of {what} from {span}; {there}"))


def _lacks(asked: _Asked, lacking: Sequence[date]) -> str:
    from karrot.cli.histories import in_words
    from karrot.history import stretches

    return (
        f"{asked.tables / 'incidents'} lacks incidents of {in_words(list(stretches(lacking)))}: copy that table too, "
        "or remove _derived.json and run karrot pipeline derive"
    )


def _say_lacking(asked: _Asked, lacking: Sequence[date]) -> None:
    """Say why days are missing that derive has finished."""
    if lacking:
        click.echo(f"karrot: {one_line(_lacks(asked, lacking))}", err=True)


def _say_newest(asked: _Asked, days: "Days", newest: datetime, what: str, nothing: str) -> None:
    """Say when the newest verdict was, if hours of the days that are held follow it."""
    after_held = datetime.combine(days.held[-1].last + timedelta(days=1), time(), UTC)
    if min(asked.passed.end, after_held) - newest <= _LATE:
        return
    if newest < asked.span.start:
        after = ", before the time you asked for"
    else:
        after = f"; {nothing} is known of {what} after it"
    click.echo(f"karrot: the newest verdict is of {clock(newest)} UTC{after}", err=True)


def _say_missing(days: "Days", what: str, nothing: str = "nothing") -> None:
    """Name the days that the answer is not about."""
    from karrot.cli.history.groups import in_words

    if not days.missing:
        return
    missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
    of_days = f"{missing} of {counted(missing + held, 'day')}"
    click.echo(f"karrot: {nothing} is known of {what} on {in_words(days.missing)} ({of_days})", err=True)
