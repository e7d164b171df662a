"""``karrot history describe``: prints a group as ``kafka-consumer-groups --describe`` does, at any past moment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.groups.group_tables import OFFSETS
from karrot.cli.history.moment_request import (
    LOOK_BACK_HELP,
    MomentRequest,
    look_back_option,
    moment_options,
    nothing_known_at,
    when,
)
from karrot.cli.history.open_tables import answered, places
from karrot.cli.table import UNKNOWN, Column, PrintedTable, cell, json_line, print_lines, safe, terminal_width
from karrot.text import counted_plain, to_second

if TYPE_CHECKING:
    from karrot.history import GroupDescription, PartitionDescription


_NO_OWNERS = (
    "the owners are unknown: the group's consumers assign partitions themselves, or use the consumer protocol of "
    "KIP-848, whose member records Karrot does not read"
)


@click.command()
@places
@click.option("--group", required=True, help="The consumer group.")
@moment_options
@look_back_option("7d", LOOK_BACK_HELP)
def describe(look_back: timedelta, **given: Any) -> None:
    """Print a group as kafka-consumer-groups --describe does, now or at a past moment.

    The owner is the consumer's ID, host and client ID. A dash stands for an offset older than
    --look-back, for a log end that was not sampled, or for an owner in a group with KIP-848's protocol.

    If the tables have no records of __consumer_offsets for the group, the values come from the newest event of a resync
    (Burrow's REST API) or of Karrot's own watch (KARROT_WATCH_BOOTSTRAP).
    """
    request = MomentRequest.of(given)
    with answered(request.tables) as history:
        found = history.describe(request.group or "", request.at, cluster=request.cluster, look_back=look_back)
        if found is None:
            raise nothing_known_at(request, history.days("commits") or history.days("partitions"))
    if request.as_json:
        click.echo(json_line(asdict(found)))
    else:
        print_lines(described_lines(found))


def _owner(row: Mapping[str, Any]) -> str:
    """The consumer's ID, host and client ID. Kafka writes a host as ``/10.1.2.3``."""
    parts = (row["consumer_id"], (row["host"] or "").removeprefix("/"), row["client_id"])
    return "/".join(safe(each) for each in parts if each) or UNKNOWN


_COLUMNS = (*OFFSETS, Column("OWNER", text=_owner, may_be_cut=True, goes=1))


def described_lines(group: "GroupDescription") -> Iterator[str]:
    """A line for each partition as in Kafka's own tool, a line with the sum, and the reason if no owner is known."""
    table = PrintedTable(_COLUMNS, [{"group": group.group} | asdict(each) for each in group.partitions])
    yield from table.lines(terminal_width())
    told = [f"lag {cell(group.lag)}", counted_plain(len(group.partitions), "partition")]
    if group.unknown_lags:
        told.append(f"{group.unknown_lags} of unknown lag")
    if group.never_committed:
        told.append(f"{group.never_committed} without an offset")
    if group.members is not None:
        told.append(counted_plain(group.members, "member"))
    told += _ages(group.partitions, group.at)
    yield f"{safe(group.group)} of {safe(group.cluster)}, {to_second(group.at)}: {', '.join(told)}"
    if group.partitions and group.members is None and all(_owner(row) == UNKNOWN for row in table.rows):
        yield _NO_OWNERS


def _ages(partitions: Sequence["PartitionDescription"], at: datetime) -> Iterator[str]:
    """The times of the newest offset and log end. If these times are old, the printed lag is out of date."""
    committed = [each.committed_at for each in partitions if each.committed_at]
    looked = [each.looked_at for each in partitions if each.looked_at]
    if committed:
        yield f"last commit {when(max(committed), at)}"
    if looked:
        yield f"log ends of {when(max(looked), at)}"
