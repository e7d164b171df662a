"""``karrot history stale``: prints partitions whose committed offset does not move, at any past moment."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.moment_request import (
    LOOK_BACK_HELP,
    MomentRequest,
    limit_option,
    look_back_option,
    moment_options,
    nothing_known_at,
    read_duration,
    when,
)
from karrot.cli.history.open_tables import answered, places
from karrot.cli.table import Column, PrintedTable, json_line
from karrot.text import compact_duration, counted_plain, to_second

if TYPE_CHECKING:
    from karrot.history import StaleGroups


_COLUMNS = (
    Column("SINCE", "since", to_second),
    Column(
        "STALE-FOR",
        text=lambda row: compact_duration((row["looked_at"] - row["since"]).total_seconds()),
        is_number=True,
    ),
    Column("CLUSTER", "cluster", may_be_cut=True, goes=4),
    Column("GROUP", "group", may_be_cut=True),
    Column("TOPIC", "topic", may_be_cut=True),
    Column("PARTITION", "partition", is_number=True),
    Column("CURRENT-OFFSET", "current_offset", is_number=True, goes=2),
    Column("LOG-END-OFFSET", "log_end_offset", is_number=True, goes=1),
    Column("LAG", "lag", is_number=True),
)


@click.command(short_help="List the partitions whose committed offset does not move.")
@places
@click.option("--group", help="Show only this group.")
@moment_options
@limit_option
@click.option(
    "--stale-for",
    "length",
    default="2m",
    show_default=True,
    callback=read_duration,
    help="Show partitions that are stale for at least this time.",
)
@look_back_option("7d", LOOK_BACK_HELP)
def stale(length: timedelta, look_back: timedelta, limit: int | None, **given: Any) -> None:
    """List the partitions whose committed offset did not move while there were messages to read.

    A partition counts as stale by the same rule as in `karrot pipeline stale`. The exit code is 0 even if no partition
    is stale. It is 1 if the group has no commit within --look-back, because its state is then unknown.
    """
    request = MomentRequest.of(given)
    with answered(request.tables) as history:
        found = history.stale(request.at, length, cluster=request.cluster, group=request.group, look_back=look_back)
        if not (
            found.partitions
            or history.last_commit(request.at, cluster=request.cluster, group=request.group, look_back=look_back)
        ):
            raise nothing_known_at(request, history.days("commits"))
    table = PrintedTable(_COLUMNS, [asdict(each) | {"lag": each.lag} for each in found.partitions[:limit]])
    if request.as_json:
        click.echo(json_line(asdict(found) | {"partitions": table}))
    else:
        table.print_text()
        click.echo(_sum(found, length))


def _sum(found: "StaleGroups", least: timedelta) -> str:
    """A line with the number of stale partitions and the age of the data."""
    groups = {(each.cluster, each.group) for each in found.partitions}
    told = f"{counted_plain(len(found.partitions), 'partition')} of {counted_plain(len(groups), 'group')} stale"
    return f"{told}, {to_second(found.at)}: {', '.join(_known_of(found, least))}"


def _known_of(found: "StaleGroups", least: timedelta) -> Iterator[str]:
    """The times of the newest commit and log end. A remark marks old log ends: they do not show the lag at ``at``."""
    if found.committed_at:
        yield f"last commit {when(found.committed_at, found.at)}"
    if found.looked_at is None:
        yield "log ends unknown"
        return
    is_old = found.at - found.looked_at > least
    yield f"log ends of {when(found.looked_at, found.at)}" + (" (no newer ones are known)" if is_old else "")
