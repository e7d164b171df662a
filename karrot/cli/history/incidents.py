"""``karrot history incidents``: prints the incidents of a range of time."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.missing_days import days_json, say_missing
from karrot.cli.history.open_tables import answered, json_fields, known_name, named, of_all, one_line, places, show
from karrot.cli.history.range_request import RangeRequest, lacks_incidents, nothing_known, range_options
from karrot.cli.table import UNKNOWN, Column, laid_out, number, safe, terminal_width
from karrot.text import compact_duration, to_minute

if TYPE_CHECKING:
    from karrot.event import Incident
    from karrot.history import Days


_LATE = timedelta(seconds=300)
"""How old a verdict may be: as long as one lasts, which is the service's KARROT_STALE_AFTER unless you set it."""

_INCIDENTS = (
    Column("STARTED"),
    Column("LASTED", is_number=True),
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("WORST"),
    Column("PEAK-LAG", is_number=True),
    Column("ENDED-BY"),
    Column("EVENTS", is_number=True, goes=2),
    Column("TOPICS", may_be_cut=True, goes=3),
    Column("INCIDENT", may_be_cut=True, goes=1),
)


@click.command()
@places
@click.option("--group", help="This group alone.")
@range_options
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
    from karrot.history import IncidentOrder

    request = RangeRequest.of(given)
    what = f"incidents of {named(request.cluster, group)}"
    with answered(request.tables) as history:
        # In this order: what derive adds between the two is left out rather than taken for nothing.
        days = history.held(request.passed, "incidents", cluster=request.cluster, group=group)
        found = history.incidents(request.span, cluster=request.cluster, group=group, order=IncidentOrder(order))
        if not (found or days.held):
            raise nothing_known(request, history, what, group, "incidents")
        newest = None
        if days.held:
            newest = history.newest_verdict(days.held[-1].last, cluster=request.cluster, group=group)
        lacking = history.lacking(request.passed, cluster=request.cluster, group=group) if days.missing else ()
    if request.as_json:
        show(incidents_json(found[: request.limit], days, newest))
        return
    show(incidents_table(found, request.limit))
    # An incident that began on a day before may reach into these.
    say_missing(days, what, "nothing more" if found else "nothing")
    if lacking:
        click.echo(f"karrot: {one_line(lacks_incidents(request, lacking))}", err=True)
    if newest is not None:
        _say_newest(request, days, newest, what, "nothing more" if found else "nothing")


def _say_newest(request: RangeRequest, days: "Days", newest: datetime, what: str, nothing: str) -> None:
    """Say when the newest verdict was, if hours of the days that are held follow it."""
    after_held = datetime.combine(days.held[-1].last + timedelta(days=1), time(), UTC)
    if min(request.passed.end, after_held) - newest <= _LATE:
        return
    if newest < request.span.start:
        after = ", before the time you asked for"
    else:
        after = f"; {nothing} is known of {what} after it"
    click.echo(f"karrot: the newest verdict is of {to_minute(newest)} UTC{after}", err=True)


def incidents_table(incidents: Sequence["Incident"], limit: int | None = None) -> Iterator[str]:
    """A line for each incident, ``limit`` of them at the most, and how many there are in all."""
    if incidents:
        yield from laid_out(_INCIDENTS, list(map(_incident_row, incidents[:limit])), terminal_width())
    still = sum(each.ended_at is None for each in incidents)
    yield of_all(incidents, "incident", limit) + (f", {still} open" if still else "")


def _incident_row(one: "Incident") -> tuple[str, ...]:
    return (
        to_minute(one.started_at),
        UNKNOWN if one.ended_at is None else compact_duration((one.ended_at - one.started_at).total_seconds()),
        safe(one.cluster),
        safe(one.group),
        known_name(one.worst_status),
        number(one.peak_lag),
        safe(one.ended_by or "open"),
        number(one.events),
        ", ".join(map(safe, one.topics)) or UNKNOWN,
        known_name(one.incident_id),
    )


def incidents_json(incidents: Sequence["Incident"], days: "Days", newest_verdict: datetime | None) -> dict[str, Any]:
    """All of it, by the names of the answer's fields, and how much of the time it is about."""
    told = {"incidents": [json_fields(each._asdict()) for each in incidents], "days": days_json(days)}
    return told | json_fields({"newest_verdict": newest_verdict})
