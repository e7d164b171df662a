"""``karrot history risks``: prints committed offsets that are lost, or soon will be, at any past moment."""

from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.moment_request import (
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
from karrot.text import counted_plain, to_second

if TYPE_CHECKING:
    from karrot.history import Risks


_COLUMNS = (
    Column("RISK", "kind"),
    Column("AT", "at", to_second),
    Column("CLUSTER", "cluster", may_be_cut=True, goes=4),
    Column("GROUP", "group", may_be_cut=True),
    Column("TOPIC", "topic", may_be_cut=True),
    Column("PARTITION", "partition", is_number=True),
    Column("OFFSET", "offset", is_number=True, goes=2),
    Column("LAG", "lag", is_number=True),
    Column("MARGIN", "margin", is_number=True, goes=1),
    Column("BECAUSE", "because", goes=3),
)


@click.command()
@places
@click.option("--group", help="Show only this group.")
@moment_options
@limit_option
@click.option(
    "--within",
    default="24h",
    show_default=True,
    callback=read_duration,
    help="Show losses that are expected within this time.",
)
@click.option(
    "--retention",
    default="7d",
    show_default=True,
    callback=read_duration,
    help="Value of Kafka's offsets.retention.minutes.",
)
@look_back_option(None, "How far before --at to search for offsets.  [default: --retention plus one day]")
def risks(
    within: timedelta, retention: timedelta, look_back: timedelta | None, limit: int | None, **given: Any
) -> None:
    """List the committed offsets that are lost, or soon will be. The earliest loss comes first.

    There are three risks. "expires": Kafka will delete the offset, because no consumer uses it. "deleted": Kafka
    deleted the offset, and the topic still grows. "log_start": Kafka deletes messages before the group reads them.
    MARGIN is the committed offset minus the log start offset. For example, -5 means that 5 unread messages are deleted.

    The last line names the data that the tables do not have. If the members of groups are missing, "expires" is
    shown only for offsets that have an expiry time from Kafka.
    """
    request = MomentRequest.of(given)
    with answered(request.tables) as history:
        found = history.risks(
            request.at,
            within=within,
            retention=retention,
            cluster=request.cluster,
            group=request.group,
            look_back=look_back,
        )
        last = history.last_commit(
            request.at,
            cluster=request.cluster,
            group=request.group,
            look_back=look_back or retention + timedelta(days=1),
        )
        if not (found.risks or last):
            raise nothing_known_at(request, history.days("commits"))
    table = PrintedTable(_COLUMNS, [asdict(each) for each in found.risks[:limit]])
    if request.as_json:
        unknown = {"unknown": found.unknown} if found.unknown else {}
        click.echo(json_line({"at": request.at, "committed_at": last, **unknown, "risks": table}))
    else:
        table.print_text()
        click.echo(_sum(found, request.at, last))


def _sum(found: "Risks", at: datetime, last_commit: datetime | None) -> str:
    """A line with the number of partitions at risk, the age of the data, and the unknown data."""
    kinds = Counter(each.kind for each in found.risks)
    groups = {(each.cluster, each.group) for each in found.risks}
    told = "".join(f", {many} {kind}" for kind, many in sorted(kinds.items()))
    newest = "" if last_commit is None else f"; last commit {when(last_commit, at)}"
    unknown = "".join(f"; {what} not known" for what in found.unknown)
    partitions, of_groups = counted_plain(len(found.risks), "partition"), counted_plain(len(groups), "group")
    return f"{partitions} of {of_groups} at risk{told}{newest}{unknown}"
