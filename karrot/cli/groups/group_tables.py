"""Writes groups and their partitions as tables, and as a line of JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from karrot.cli.groups.group_answers import GroupAnswers
from karrot.cli.table import UNKNOWN, Column, laid_out, number, safe, terminal_width
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.event import LagEvent, PartitionLag
    from karrot.eventlog.group_health import GroupHealth


_GROUPS = (
    Column("GROUP", may_be_cut=True),
    Column("STATUS"),
    Column("LAG", is_number=True),
    Column("SHARE", is_number=True),
    Column("WORST", may_be_cut=True, goes=6),
    Column("PARTITIONS", is_number=True, goes=1),
    Column("COMPLETE", is_number=True, goes=2),
)
KAFKA = (
    Column("STATE", goes=9),
    Column("MEMBERS", is_number=True, goes=8),
    Column("COORDINATOR", is_number=True, goes=5),
    Column("REBALANCES", is_number=True, goes=7),
    Column("LOST", is_number=True, goes=4),
    Column("MARGIN", is_number=True, goes=3),
)
"""The columns that need Kafka; their numbers are those of `GroupHealth`."""

OFFSETS = (
    Column("GROUP", may_be_cut=True, goes=4),
    Column("TOPIC", may_be_cut=True),
    Column("PARTITION", is_number=True),
    Column("CURRENT-OFFSET", is_number=True, goes=3),
    Column("LOG-END-OFFSET", is_number=True, goes=2),
    Column("LAG", is_number=True),
)
OWNER = Column("OWNER", may_be_cut=True, goes=1)
"""With `OFFSETS`, what ``kafka-consumer-groups --describe`` shows of a partition."""

_PARTITIONS = (*OFFSETS, Column("STATUS"), OWNER)


def groups_table(asked: GroupAnswers) -> Iterator[str]:
    """A line for each group, and the sum."""
    if not asked.verdicts:
        return
    rows = [(*_group_row(event), *_known_to_kafka(asked, event)) for event in asked.verdicts]
    columns = _GROUPS if asked.healths is None else (*_GROUPS, *KAFKA)
    yield from laid_out(columns, rows, terminal_width())
    total = sum(event.total_lag or 0 for event in asked.verdicts)
    told = [tally(event.status_text for event in asked.verdicts)]
    if asked.healths is not None:
        told.append(tally(health.state for health in asked.healths.values()))
    yield "; ".join([f"{safe(asked.cluster)}: {counted_plain(len(rows), 'group')}, lag {total}", *filter(None, told)])


def tally(words: Iterable[str]) -> str:
    """How often each word occurs: ``2 ERR, 5 OK``."""
    return ", ".join(f"{number} {safe(word)}" for word, number in sorted(Counter(words).items()) if word)


def _group_row(event: "LagEvent") -> tuple[str, ...]:
    worst = event.max_lag
    return (
        safe(event.consumer),
        _status(event.status_text),
        number(event.total_lag),
        _share(event),
        UNKNOWN if worst is None else f"{safe(worst.topic)}-{worst.partition}",
        number(event.partition_count),
        UNKNOWN if event.complete is None else f"{event.complete:.0%}",
    )


def _known_to_kafka(asked: GroupAnswers, event: "LagEvent") -> tuple[str, ...]:
    """The cells of `KAFKA`; none if Kafka was not asked."""
    if asked.healths is None:
        return ()
    return health_row(asked.healths.get(event.consumer), counts_rebalances=asked.counts_rebalances)


def health_row(health: "GroupHealth | None", *, counts_rebalances: bool = True) -> tuple[str, ...]:
    """The cells of `KAFKA` for one group."""
    if health is None:
        return (UNKNOWN,) * len(KAFKA)
    return (
        health.state,
        number(health.members),
        number(health.coordinator),
        number(health.rebalances if counts_rebalances else None),
        number(health.messages_lost),
        number(health.retention_margin),
    )


def partition_tables(asked: GroupAnswers) -> Iterator[str]:
    """A table for each group, as Kafka's own tool prints it, and a line that sums it up."""
    width = terminal_width()
    for at, event in enumerate(asked.verdicts):
        if at and (event.partitions or asked.verdicts[at - 1].partitions):
            yield ""
        if event.partitions:
            yield from laid_out(_PARTITIONS, [_partition_row(event, each) for each in event.partitions], width)
        yield _sum(event) + _stability(asked, event)


def _partition_row(event: "LagEvent", one: "PartitionLag") -> tuple[str, ...]:
    return (
        safe(event.consumer),
        safe(one.topic),
        str(one.partition),
        number(None if one.end is None else one.end.offset),
        number(one.log_end_offset),
        number(one.current_lag),
        _status(one.status_text),
        safe(one.owner) if one.owner else UNKNOWN,
    )


def _sum(event: "LagEvent") -> str:
    worst = event.max_lag
    status = f"{safe(event.status_text)}, " if event.status_text else ""
    told = f"{safe(event.consumer)}: {status}lag {number(event.total_lag)}"
    if worst is not None and event.total_lag:
        told += f", {_share(event)} of it in {safe(worst.topic)}-{worst.partition}"
    if event.partition_count is not None:
        told += f"; {counted_plain(event.partition_count, 'partition')}"
    return told if event.complete in (None, 1) else f"{told}, {event.complete:.0%} complete"


def _stability(asked: GroupAnswers, event: "LagEvent") -> str:
    """What Kafka says about the group, for the end of the line that sums it up."""
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
        told.append(f"{health.messages_lost} deleted unread")
    return "; " + ", ".join(told)


def json_line(asked: GroupAnswers) -> Iterator[str]:
    """The whole answer as one line of JSON."""
    failed = [{"group": group, "error": str(error)} for group, error in asked.failed.items()]
    verdicts = [_as_json(event) | _health_as_json(asked, event) for event in asked.verdicts]
    yield json.dumps({"cluster": asked.cluster, "groups": verdicts, "failed": failed})


def _health_as_json(asked: GroupAnswers, event: "LagEvent") -> dict[str, Any]:
    """The fields that need Kafka; none if Kafka was not asked."""
    if asked.healths is None:
        return {}
    health = asked.healths.get(event.consumer)
    return {
        "state": health and health.state,
        "members": health and health.members,
        "coordinator": health and health.coordinator,
        "rebalances": health and health.rebalances if asked.counts_rebalances else None,
        "messages_lost": health and health.messages_lost,
        "retention_margin": health and health.retention_margin,
    }


def _as_json(event: "LagEvent") -> dict[str, Any]:
    worst = event.max_lag
    return {
        "group": event.consumer,
        "status": event.status_text or None,
        "lag": event.total_lag,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "worst": worst and _partition_as_json(worst) | {"share": _share_of(event)},
        "partitions": [_partition_as_json(each) for each in event.partitions],
    }


def _partition_as_json(one: "PartitionLag") -> dict[str, Any]:
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
    """The worst partition's share of the lag: 1 if it has all of it, 1/n if n partitions lag evenly."""
    if event.max_lag is None or event.max_lag.current_lag is None or not event.total_lag:
        return None
    return event.max_lag.current_lag / event.total_lag


def _share(event: "LagEvent") -> str:
    share = _share_of(event)
    return UNKNOWN if share is None else f"{share:.0%}"


def _status(text: str) -> str:
    """The cell of a verdict; a dash if only Kafka was asked."""
    return safe(text) if text else UNKNOWN
