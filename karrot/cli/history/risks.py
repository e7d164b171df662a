"""What ``karrot history describe``, ``stale`` and ``risks`` were told, as tables and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from karrot.cli.cells import UNKNOWN, counted, length, number, plain, safe
from karrot.cli.groups.group_tables import OFFSETS, OWNER
from karrot.cli.table_layout import Column, laid_out, terminal_width

if TYPE_CHECKING:
    from karrot.history import GroupDescription, PartitionDescription, Risk, Risks, StaleGroups, StalePartition

__all__ = ["described_json", "described_table", "risks_json", "risks_table", "stale_json", "stale_table"]

_DESCRIBED = (*OFFSETS, OWNER)
_STALE = (
    Column("SINCE"),
    Column("STALE-FOR", is_number=True),
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("TOPIC", may_be_cut=True),
    Column("PARTITION", is_number=True),
    Column("CURRENT-OFFSET", is_number=True, goes=2),
    Column("LOG-END-OFFSET", is_number=True, goes=1),
    Column("LAG", is_number=True),
)
_RISKS = (
    Column("RISK"),
    Column("AT"),
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("TOPIC", may_be_cut=True),
    Column("PARTITION", is_number=True),
    Column("OFFSET", is_number=True, goes=2),
    Column("LAG", is_number=True),
    Column("MARGIN", is_number=True, goes=1),
    Column("BECAUSE", goes=3),
)


_NO_OWNERS = (
    "no owners are known: its consumers assign partitions themselves, or use the protocol of KIP-848, whose records of "
    "members are not read"
)


def described_table(group: "GroupDescription") -> Iterator[str]:
    """A line for each partition, as Kafka's own tool prints them, the sum, and why there are no owners if so."""
    yield from laid_out(_DESCRIBED, [_described_row(group.group, each) for each in group.partitions], terminal_width())
    told = [f"lag {number(group.lag)}", counted(len(group.partitions), "partition")]
    if group.unknown_lags:
        told.append(f"{group.unknown_lags} of unknown lag")
    if group.never_committed:
        told.append(f"{group.never_committed} without an offset")
    if group.members is not None:
        told.append(counted(group.members, "member"))
    told += _ages(group.partitions, group.at)
    yield f"{safe(group.group)} of {safe(group.cluster)}, {_second(group.at)}: {', '.join(told)}"
    if group.partitions and group.members is None and all(_owner(each) == UNKNOWN for each in group.partitions):
        yield _NO_OWNERS


def _ages(partitions: Sequence["PartitionDescription"], at: datetime) -> Iterator[str]:
    """When what is known of offsets and of log ends was true: the lag of a job that is behind is none of its group."""
    committed = [each.committed_at for each in partitions if each.committed_at]
    looked = [each.looked_at for each in partitions if each.looked_at]
    if committed:
        yield f"last commit {_when(max(committed), at)}"
    if looked:
        yield f"log ends of {_when(max(looked), at)}"


def _when(moment: datetime, at: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.date() == at.date() else _second(moment)


def _described_row(group: str, one: "PartitionDescription") -> tuple[str, ...]:
    return (
        safe(group),
        safe(one.topic),
        str(one.partition),
        number(one.current_offset),
        number(one.log_end_offset),
        number(one.lag),
        _owner(one),
    )


def _owner(one: "PartitionDescription") -> str:
    """The consumer's id, host and client id; Kafka writes a host as ``/10.1.2.3``."""
    parts = (one.consumer_id, (one.host or "").removeprefix("/"), one.client_id)
    return "/".join(safe(each) for each in parts if each) or UNKNOWN


def described_json(group: "GroupDescription") -> dict[str, Any]:
    """All of it, by the names of the answer's fields."""
    return plain(asdict(group) | {"partitions": [plain(asdict(each)) for each in group.partitions]})


def stale_table(found: "StaleGroups", least: timedelta, limit: int | None = None) -> Iterator[str]:
    """A line for each partition, ``limit`` of them at the most, how many there are in all and how new that is."""
    partitions = found.partitions
    if partitions:
        yield from laid_out(_STALE, list(map(_stale_row, partitions[:limit])), terminal_width())
    groups = {(each.cluster, each.group) for each in partitions}
    told = f"{counted(len(partitions), 'partition')} of {counted(len(groups), 'group')} stale"
    yield f"{told}, {_second(found.at)}: {', '.join(_known_of(found, least))}"


def _known_of(found: "StaleGroups", least: timedelta) -> Iterator[str]:
    """When what is known was true; looks that ended before the time that is asked for say nothing of it."""
    if found.committed_at:
        yield f"last commit {_when(found.committed_at, found.at)}"
    if found.looked_at is None:
        yield "log ends not known"
        return
    is_old = found.at - found.looked_at > least
    yield f"log ends of {_when(found.looked_at, found.at)}" + (" (nothing newer is known)" if is_old else "")


def _stale_row(one: "StalePartition") -> tuple[str, ...]:
    return (
        _second(one.since),
        length(one.looked_at - one.since),
        safe(one.cluster),
        safe(one.group),
        safe(one.topic),
        str(one.partition),
        number(one.current_offset),
        number(one.log_end_offset),
        number(one.lag),
    )


def stale_json(found: "StaleGroups", limit: int | None = None) -> dict[str, Any]:
    """All of it, by the names of the answer's fields."""
    partitions = [plain(asdict(each) | {"lag": each.lag}) for each in found.partitions[:limit]]
    return plain(asdict(found) | {"partitions": partitions})


def risks_table(found: "Risks", at: datetime, last_commit: datetime | None, limit: int | None = None) -> Iterator[str]:
    """A line for each risk, ``limit`` of them at the most, how many there are in all, how new that is and of what."""
    if found.risks:
        yield from laid_out(_RISKS, list(map(_risk_row, found.risks[:limit])), terminal_width())
    kinds = Counter(each.kind for each in found.risks)
    groups = {(each.cluster, each.group) for each in found.risks}
    told = "".join(f", {many} {kind}" for kind, many in sorted(kinds.items()))
    newest = "" if last_commit is None else f"; last commit {_when(last_commit, at)}"
    unknown = "".join(f"; {what} not known" for what in found.unknown)
    yield f"{counted(len(found.risks), 'partition')} of {counted(len(groups), 'group')} at risk{told}{newest}{unknown}"


def _risk_row(one: "Risk") -> tuple[str, ...]:
    return (
        one.kind,
        _second(one.at),
        safe(one.cluster),
        safe(one.group),
        safe(one.topic),
        str(one.partition),
        number(one.offset),
        number(one.lag),
        number(one.margin),
        one.because,
    )


def risks_json(found: "Risks", at: datetime, last_commit: datetime | None, limit: int | None = None) -> dict[str, Any]:
    """All of it, by the names of the answer's fields; ``committed_at`` is the newest commit that is known.

    ``unknown`` is there if something is.
    """
    told = plain({"at": at, "committed_at": last_commit}) | ({"unknown": list(found.unknown)} if found.unknown else {})
    return told | {"risks": [plain(asdict(each)) for each in found.risks[:limit]]}


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
