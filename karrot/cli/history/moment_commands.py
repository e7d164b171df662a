"""``karrot history describe``, ``stale`` and ``risks``: print the state of groups at any past moment."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, valid
from karrot.cli.groups import OFFSETS
from karrot.cli.history.open_tables import answered, dates_in_words, named, one_line, places
from karrot.cli.options import option_set, read_span
from karrot.cli.table import UNKNOWN, Column, PrintedTable, cell, json_line, print_lines, safe, terminal_width
from karrot.text import compact_duration, counted_plain, to_minute, to_second

if TYPE_CHECKING:
    from karrot.history.results import GroupDescription, PartitionDescription, Risks, StaleGroups
    from karrot.settings.types import Place


def _read_moment(_context: click.Context, _option: click.Parameter, text: str) -> datetime:
    from karrot.history.moments import moment

    return valid(lambda: moment(text, datetime.now(UTC)))


_moment_options = option_set(
    click.option(
        "--at", default="now", callback=_read_moment, help="A time: ISO 8601 (UTC), or an age such as 90m or 7d."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table."),
)
_limit_option = click.option("--limit", type=click.IntRange(1), help="Show at most this number of partitions.")
_duration_option = partial(click.option, callback=read_span(10 * 366 * 86_400))
_look_back_option = _duration_option(
    "--look-back",
    default="7d",
    help="How far before --at to search for a partition's newest offset. A longer search is slower.",
)


def _nothing_known(
    tables: "Place", at: datetime, days: Sequence[date], *, cluster: str | None, group: str | None
) -> NotDone:
    """The error for a moment without data. Its message names the days that the tables have."""
    return NotDone(
        one_line(
            f"no data about {named(cluster, group)} at {to_minute(at)} UTC or in the look-back before it; "
            f"{tables} has {dates_in_words(days)}"
        )
    )


def _when(moment: datetime, at: datetime) -> str:
    """A time. The date comes first if it differs from the date of ``at``."""
    return f"{moment:%H:%M:%S}" if moment.date() == at.date() else to_second(moment)


_NO_OWNERS = (
    "the owners are unknown: the group's consumers assign partitions themselves, or use the consumer protocol of "
    "KIP-848, whose member records Karrot does not read"
)


@click.command()
@places
@click.option("--group", required=True, help="The consumer group.")
@_moment_options
@_look_back_option
def describe(
    *, tables: "Place", cluster: str | None, group: str, at: datetime, look_back: timedelta, as_json: bool
) -> None:
    """Print a group as kafka-consumer-groups --describe does, now or at a past moment.

    The owner is the consumer's ID, host and client ID. A dash stands for an offset older than
    --look-back, for a log end that was not sampled, or for an owner in a group with KIP-848's protocol.

    If the tables have no records of __consumer_offsets for the group, the values come from the newest event of a resync
    (Burrow's REST API) or of Karrot's own watch (KARROT_WATCH_BOOTSTRAP).
    """
    with answered(tables) as history:
        found = history.describe(group, at, cluster=cluster, look_back=look_back)
        if found is None:
            days = history.days("commits") or history.days("partitions")
            raise _nothing_known(tables, at, days, cluster=cluster, group=group)
    if as_json:
        click.echo(json_line(asdict(found)))
    else:
        print_lines(described_lines(found))


def _owner(row: Mapping[str, Any]) -> str:
    """The consumer's ID, host and client ID. Kafka writes a host as ``/10.1.2.3``."""
    parts = (row["consumer_id"], (row["host"] or "").removeprefix("/"), row["client_id"])
    return "/".join(safe(each) for each in parts if each) or UNKNOWN


_DESCRIBED = (*OFFSETS, Column("OWNER", text=_owner, may_be_cut=True, goes=1))


def described_lines(group: "GroupDescription") -> Iterator[str]:
    """A line for each partition as in Kafka's own tool, a line with the sum, and the reason if no owner is known."""
    table = PrintedTable(_DESCRIBED, [{"group": group.group} | asdict(each) for each in group.partitions])
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
        yield f"last commit {_when(max(committed), at)}"
    if looked:
        yield f"log ends of {_when(max(looked), at)}"


_STALE = (
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
@_moment_options
@_limit_option
@_duration_option("--stale-for", "length", default="2m", help="Show partitions that are stale for at least this time.")
@_look_back_option
def stale(
    *,
    tables: "Place",
    at: datetime,
    length: timedelta,
    look_back: timedelta,
    limit: int | None,
    as_json: bool,
    **whom: str | None,
) -> None:
    """List the partitions whose committed offset did not move while there were messages to read.

    A partition counts as stale by the same rule as in `karrot pipeline stale`. The exit code is 0 even if no partition
    is stale. It is 1 if the group has no commit within --look-back, because its state is then unknown.
    """
    with answered(tables) as history:
        found = history.stale(at, length, look_back=look_back, **whom)
        if not (found.partitions or history.last_commit(at, look_back=look_back, **whom)):
            raise _nothing_known(tables, at, history.days("commits"), **whom)
    table = PrintedTable(_STALE, [asdict(each) | {"lag": each.lag} for each in found.partitions[:limit]])
    if as_json:
        click.echo(json_line(asdict(found) | {"partitions": table}))
    else:
        table.print_text()
        click.echo(_sum_of_stale(found, length))


def _sum_of_stale(found: "StaleGroups", least: timedelta) -> str:
    """A line with the number of stale partitions and the age of the data."""
    groups = {(each.cluster, each.group) for each in found.partitions}
    told = f"{counted_plain(len(found.partitions), 'partition')} of {counted_plain(len(groups), 'group')} stale"
    return f"{told}, {to_second(found.at)}: {', '.join(_known_of(found, least))}"


def _known_of(found: "StaleGroups", least: timedelta) -> Iterator[str]:
    """The times of the newest commit and log end. A remark marks old log ends: they do not show the lag at ``at``."""
    if found.committed_at:
        yield f"last commit {_when(found.committed_at, found.at)}"
    if found.looked_at is None:
        yield "log ends unknown"
        return
    is_old = found.at - found.looked_at > least
    yield f"log ends of {_when(found.looked_at, found.at)}" + (" (no newer ones are known)" if is_old else "")


_RISKS = (
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
@_moment_options
@_limit_option
@_duration_option("--within", default="24h", help="Show losses that are expected within this time.")
@_duration_option("--retention", default="7d", help="Value of Kafka's offsets.retention.minutes.")
@_duration_option("--look-back", help="How far before --at to search for offsets.  [default: --retention plus one day]")
def risks(
    *,
    tables: "Place",
    at: datetime,
    within: timedelta,
    retention: timedelta,
    look_back: timedelta | None,
    limit: int | None,
    as_json: bool,
    **whom: str | None,
) -> None:
    """List the committed offsets that are lost, or soon will be. The earliest loss comes first.

    There are three risks. "expires": Kafka will delete the offset, because no consumer uses it. "deleted": Kafka
    deleted the offset, and the topic still grows. "log_start": Kafka deletes messages before the group reads them.
    MARGIN is the committed offset minus the log start offset. For example, -5 means that 5 unread messages are deleted.

    The last line names the data that the tables do not have. If the members of groups are missing, "expires" is
    shown only for offsets that have an expiry time from Kafka.
    """
    with answered(tables) as history:
        found = history.risks(at, within=within, retention=retention, look_back=look_back, **whom)
        last = history.last_commit(at, look_back=look_back or retention + timedelta(days=1), **whom)
        if not (found.risks or last):
            raise _nothing_known(tables, at, history.days("commits"), **whom)
    table = PrintedTable(_RISKS, [asdict(each) for each in found.risks[:limit]])
    if as_json:
        unknown = {"unknown": found.unknown} if found.unknown else {}
        click.echo(json_line({"at": at, "committed_at": last, **unknown, "risks": table}))
    else:
        table.print_text()
        click.echo(_sum_of_risks(found, at, last))


def _sum_of_risks(found: "Risks", at: datetime, last_commit: datetime | None) -> str:
    """A line with the number of partitions at risk, the age of the data, and the unknown data."""
    kinds = Counter(each.kind for each in found.risks)
    groups = {(each.cluster, each.group) for each in found.risks}
    told = "".join(f", {many} {kind}" for kind, many in sorted(kinds.items()))
    newest = "" if last_commit is None else f"; last commit {_when(last_commit, at)}"
    unknown = "".join(f"; {what} not known" for what in found.unknown)
    partitions, of_groups = counted_plain(len(found.risks), "partition"), counted_plain(len(groups), "group")
    return f"{partitions} of {of_groups} at risk{told}{newest}{unknown}"
