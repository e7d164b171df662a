"""``karrot history groups``: prints groups with their lag, minutes not OK and incidents in a range of time."""

from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from karrot.cli.history.open_tables import answered, named, of_all, places
from karrot.cli.history.range_request import (
    RangeRequest,
    day_ranges_json,
    days_json,
    in_words,
    nothing_known,
    range_options,
    say_missing,
)
from karrot.cli.table import Column, PrintedTable, cell, json_line
from karrot.text import to_minute

_COLUMNS = (
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
    show_default=True,
    help="Sort by name, or by the largest value first.",
)
def groups(group: str | None, order: str, **given: Any) -> None:
    """List the groups with their lag, minutes not OK and incidents in a range of time.

    If some days, or the incidents of some days, are missing in the tables, the command names these days on standard
    error, and in the field "days" of --json.
    """
    from karrot.event import Status
    from karrot.history import GroupOrder, day_ranges

    request = RangeRequest.of(given)
    whom = named(request.cluster, group)
    with answered(request.tables) as history:
        # Ask for these days first. If derive finishes a day before the next query, the warning still names that day.
        uncounted = list(day_ranges(history.uncounted(request.span, cluster=request.cluster, group=group)))
        found = history.groups(request.span, cluster=request.cluster, group=group, order=GroupOrder(order))
        if not found:
            raise nothing_known(request, history, whom, group, "lag_minute")
        days = history.held(request.passed, "lag_minute", cluster=request.cluster, group=group)
    table = PrintedTable(_COLUMNS, [asdict(each) for each in found[: request.limit]])
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
