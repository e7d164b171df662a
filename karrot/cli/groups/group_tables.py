"""Formats groups and their partitions as tables or as a line of JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from karrot.cli.groups.burrow_or_kafka import GroupAnswers
from karrot.cli.table import UNKNOWN, Column, PrintedTable, cell, json_line, safe, terminal_width
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.event import LagEvent, PartitionLag
    from karrot.eventlog.watched_groups import GroupHealth


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


_GROUPS = (
    Column("GROUP", "group", may_be_cut=True),
    Column("STATUS", "status"),
    Column("LAG", "lag", is_number=True),
    Column("SHARE", "worst", lambda worst: _percent(worst and worst["share"]), is_number=True),
    Column(
        "WORST",
        "worst",
        lambda worst: f"{safe(worst['topic'])}-{worst['partition']}" if worst else UNKNOWN,
        may_be_cut=True,
        goes=6,
    ),
    Column("PARTITIONS", "partition_count", is_number=True, goes=1),
    Column("COMPLETE", "complete", _percent, is_number=True, goes=2),
)
KAFKA = (
    Column("STATE", "state", goes=9),
    Column("MEMBERS", "members", is_number=True, goes=8),
    Column("COORDINATOR", "coordinator", is_number=True, goes=5),
    Column("REBALANCES", "rebalances", is_number=True, goes=7),
    Column("LOST", "messages_lost", is_number=True, goes=4),
    Column("MARGIN", "retention_margin", is_number=True, goes=3),
)
"""The columns with data from Kafka. They show `health_fields`."""

_HEALTH = (*(each.field for each in KAFKA), "beyond_end", "uncommitted")

OFFSETS = (
    Column("GROUP", "group", may_be_cut=True, goes=4),
    Column("TOPIC", "topic", may_be_cut=True),
    Column("PARTITION", "partition", is_number=True),
    Column("CURRENT-OFFSET", "current_offset", is_number=True, goes=3),
    Column("LOG-END-OFFSET", "log_end_offset", is_number=True, goes=2),
    Column("LAG", "lag", is_number=True),
)
"""The columns of ``kafka-consumer-groups --describe``, without the owner."""

_PARTITIONS = (
    *OFFSETS,
    Column("STATUS", "status"),
    Column("OWNER", "owner", lambda owner: cell(owner or None), may_be_cut=True, goes=1),
)


def groups_table(asked: GroupAnswers) -> Iterator[str]:
    """A line for each group, and a line with the totals."""
    if not asked.verdicts:
        return
    columns = _GROUPS if asked.healths is None else (*_GROUPS, *KAFKA)
    yield from PrintedTable(columns, [_group_fields(asked, event) for event in asked.verdicts]).lines(terminal_width())
    groups, lag = len(asked.verdicts), sum_of_known(asked.verdicts)
    told = [tally(event.status_text for event in asked.verdicts)]
    if asked.healths is not None:
        told.append(tally(health.state for health in asked.healths.values()))
    yield "; ".join([f"{safe(asked.cluster)}: {counted_plain(groups, 'group')}, lag {lag}", *filter(None, told)])


def sum_of_known(verdicts: "Iterable[LagEvent]") -> str:
    """The sum of the known lags, and the number of groups whose lag is unknown. Without a known lag, a dash."""
    lags = [event.total_lag for event in verdicts]
    unknown = lags.count(None)
    known = cell(sum(lag for lag in lags if lag is not None) if unknown < len(lags) else None)
    return f"{known} without {counted_plain(unknown, 'group')}" if unknown else known


def tally(words: Iterable[str]) -> str:
    """How often each word occurs, for example ``2 ERR, 5 OK``."""
    return ", ".join(f"{number} {safe(word)}" for word, number in sorted(Counter(words).items()) if word)


def partition_tables(asked: GroupAnswers) -> Iterator[str]:
    """For each group, a table with the columns of ``kafka-consumer-groups``, and a line with the group's totals."""
    width = terminal_width()
    for at, event in enumerate(asked.verdicts):
        if at and (event.partitions or asked.verdicts[at - 1].partitions):
            yield ""
        if event.partitions:
            rows = [{"group": event.consumer} | _partition_fields(each) for each in event.partitions]
            yield from PrintedTable(_PARTITIONS, rows).lines(width)
        yield _sum(event) + _stability(asked, event)


def _sum(event: "LagEvent") -> str:
    worst = event.max_lag
    status = f"{safe(event.status_text)}, " if event.status_text else ""
    told = f"{safe(event.consumer)}: {status}lag {cell(event.total_lag)}"
    if worst is not None and event.total_lag:
        told += f", {_percent(_share_of(event))} of it in {safe(worst.topic)}-{worst.partition}"
    if event.partition_count is not None:
        told += f"; {counted_plain(event.partition_count, 'partition')}"
    return told if event.complete in (None, 1) else f"{told}, {event.complete:.0%} complete"


def _stability(asked: GroupAnswers, event: "LagEvent") -> str:
    """Kafka's data about a group, for the end of the group's last line."""
    health = (asked.healths or {}).get(event.consumer)
    if health is None:
        return ""
    told = [health.state]
    if health.members is not None:
        told.append(counted_plain(health.members, "member"))
    if health.coordinator is not None:
        told.append(f"coordinator {health.coordinator}")
    if asked.counts_rebalances:
        told.append(counted_plain(health.rebalances, "rebalance"))
    if health.messages_lost:
        told.append(f"{health.messages_lost} lost unread")
    if health.uncommitted:
        told.append(f"{counted_plain(health.uncommitted, 'partition')} without a committed offset")
    elif not event.partitions and not event.status_text:
        told.append(
            "no committed offset is visible: nothing was committed yet, the offsets expired, or Karrot has no right "
            "Describe on the topics"
        )
    if health.beyond_end:
        told.append(f"{counted_plain(health.beyond_end, 'partition')} with an offset past the log end")
    return "; " + ", ".join(told)


def groups_json(asked: GroupAnswers) -> Iterator[str]:
    """The complete answer as one line of JSON."""
    failed = [{"group": group, "error": str(error)} for group, error in asked.failed.items()]
    groups = [_group_fields(asked, event) for event in asked.verdicts]
    yield json_line({"cluster": asked.cluster, "groups": groups, "failed": failed})


def _group_fields(asked: GroupAnswers, event: "LagEvent") -> dict[str, Any]:
    """The JSON fields of a group. The fields with data from Kafka are left out if Kafka was not asked."""
    worst = event.max_lag
    fields = {
        "group": event.consumer,
        "status": event.status_text or None,
        "lag": event.total_lag,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "worst": worst and _partition_fields(worst) | {"share": _share_of(event)},
        "partitions": [_partition_fields(each) for each in event.partitions],
    }
    if asked.healths is None:
        return fields
    return fields | health_fields(asked.healths.get(event.consumer), counts_rebalances=asked.counts_rebalances)


def health_fields(health: "GroupHealth | None", *, counts_rebalances: bool = True) -> dict[str, Any]:
    """The JSON fields with Kafka's data about a group. They are ``None`` if Kafka has no data."""
    fields = {name: getattr(health, name, None) for name in _HEALTH}
    return fields if counts_rebalances else fields | {"rebalances": None}


def _partition_fields(one: "PartitionLag") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "current_offset": one.end and one.end.offset,
        "log_end_offset": one.log_end_offset,
        "lag": one.current_lag,
        "status": one.status_text or None,
        "owner": one.owner,
        "client_id": one.client_id,
    }


def _share_of(event: "LagEvent") -> float | None:
    """The share of a group's lag on the partition with the largest lag. It is 1/n if n partitions have equal lags."""
    if event.max_lag is None or event.max_lag.current_lag is None or not event.total_lag:
        return None
    return event.max_lag.current_lag / event.total_lag
