"""``karrot history groups``: prints the groups of a range of time, with their lag, bad minutes and incidents."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.missing_days import day_ranges_json, days_json, in_words, say_missing
from karrot.cli.history.open_tables import answered, json_fields, known_name, named, of_all, places, show
from karrot.cli.history.range_request import RangeRequest, nothing_known, range_options
from karrot.cli.table import Column, laid_out, number, safe, terminal_width
from karrot.text import to_minute

if TYPE_CHECKING:
    from karrot.event import DayRange
    from karrot.history import Days, GroupHistory


_GROUPS = (
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("STATUS"),
    Column("WORST", goes=3),
    Column("LAG", is_number=True),
    Column("MAX-LAG", is_number=True),
    Column("MAX-SECONDS", is_number=True, goes=2),
    Column("MINUTES", is_number=True, goes=1),
    Column("NOT-OK", is_number=True),
    Column("INCIDENTS", is_number=True),
    Column("LAST", goes=5),
)


@click.command()
@places
@click.option("--group", help="This group alone.")
@range_options
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
    from karrot.history import GroupOrder, day_ranges

    request = RangeRequest.of(given)
    whom = named(request.cluster, group)
    with answered(request.tables) as history:
        found = history.groups(request.span, cluster=request.cluster, group=group, order=GroupOrder(order))
        if not found:
            raise nothing_known(request, history, whom, group, "lag_minute")
        days = history.held(request.passed, "lag_minute", cluster=request.cluster, group=group)
        uncounted = list(day_ranges(history.uncounted(request.span, cluster=request.cluster, group=group)))
    if request.as_json:
        show(groups_json(found[: request.limit], days, uncounted))
        return
    show(groups_table(found, request.limit))
    say_missing(days, whom)
    if uncounted:
        told = "INCIDENTS counts those of the other days"
        click.echo(f"karrot: incidents are not known on {in_words(uncounted)}: {told}", err=True)


def groups_table(groups: Sequence["GroupHistory"], limit: int | None = None) -> Iterator[str]:
    """A line for each group, ``limit`` of them at the most, and how many there are in all."""
    from karrot.event import Status

    yield from laid_out(_GROUPS, list(map(_group_row, groups[:limit])), terminal_width())
    worst = Counter(each.worst_status for each in groups if each.worst_status is not None)
    tally = ", ".join(f"{worst[status.name]} {status.name}" for status in reversed(Status) if status.name in worst)
    yield of_all(groups, "group", limit) + (f"; at worst {tally}" if tally else "")


def _group_row(one: "GroupHistory") -> tuple[str, ...]:
    return (
        safe(one.cluster),
        safe(one.group),
        known_name(one.status),
        known_name(one.worst_status),
        number(one.lag),
        number(one.lag_max),
        number(None if one.lag_seconds_max is None else round(one.lag_seconds_max)),
        number(one.minutes),
        number(one.minutes_not_ok),
        number(one.incidents),
        to_minute(one.last_at),
    )


def groups_json(groups: Sequence["GroupHistory"], days: "Days", uncounted: Sequence["DayRange"]) -> dict[str, Any]:
    """All of it, by the names of the answer's fields; days without known incidents are there if there are some."""
    told = days_json(days) | ({"incidents_missing": day_ranges_json(uncounted)} if uncounted else {})
    return {"groups": [json_fields(asdict(each)) for each in groups], "days": told}
