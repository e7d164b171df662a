"""``karrot history incidents``: prints the incidents of a range of time."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.open_tables import answered, named, of_all, one_line, places
from karrot.cli.history.range_request import (
    RangeRequest,
    days_json,
    lacks_incidents,
    nothing_known,
    range_options,
    say_missing,
)
from karrot.cli.table import UNKNOWN, Column, PrintedTable, json_line, safe
from karrot.text import compact_duration, to_minute

if TYPE_CHECKING:
    from karrot.history import Days


_LATE = timedelta(seconds=300)
"""If the newest verdict is older than this, the command prints its time. KARROT_STALE_AFTER has the same default."""


def _lasted(row: Mapping[str, Any]) -> str:
    if row["ended_at"] is None:
        return UNKNOWN
    return compact_duration((row["ended_at"] - row["started_at"]).total_seconds())


_COLUMNS = (
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
    show_default=True,
    help="The order of the incidents.",
)
def incidents(group: str | None, order: str, **given: Any) -> None:
    """List the incidents in a range of time, including the incidents that are still open.

    The exit code is 0 if the tables have verdicts from that time, even if there was no incident. It is 1 if the
    tables have no verdicts from that time, or no verdicts on the requested group or cluster. If some days are missing
    in the tables, the command names these days on standard error, and in the field "days" of --json.
    """
    from karrot.history import IncidentOrder

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
    table = PrintedTable(_COLUMNS, [each._asdict() for each in found[: request.limit]])
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
