"""The records of ``__consumer_offsets`` as the tables hold them, and the table ``rebalances``."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from support.pipeline.expected_tables.calendar_ms import day_text
from support.pipeline.expected_tables.log_ends import Log, LogEndRow, Sample

Rows = list[dict[str, Any]]


class Reader(NamedTuple):
    """A partition as a group reads it."""

    cluster: str
    consumer: str
    topic: str
    partition: int

    @property
    def group(self) -> tuple[str, str]:
        """Cluster and consumer group."""
        return self.cluster, self.consumer

    @property
    def log(self) -> Log:
        """The partition itself."""
        return Log(self.cluster, self.topic, self.partition)


class Commit(NamedTuple):
    """A record of a commit. ``offset`` is None if the record deletes the offset."""

    reader: Reader
    log_offset: int
    at_ms: int
    offset: int | None


class Assignment(NamedTuple):
    """A record of a group's metadata: the identities and owner texts of the members by their partitions."""

    group: tuple[str, str]
    log_offset: int
    at_ms: int
    generation: int | None
    protocol: str | None
    leader: str | None
    members: frozenset[str]
    owner_of: Mapping[tuple[str, int], str]
    identity_of: Mapping[tuple[str, int], str]


def commits_of(rows: Iterable[Mapping[str, Any]]) -> list[Commit]:
    """Return each record of the table ``commits`` once, in the order of the log."""
    found = {
        (row["cluster"], row["log_partition"], row["log_offset"]): Commit(
            Reader(row["cluster"], row["consumer"], row["topic"], row["partition"]),
            row["log_offset"],
            row["log_ts_ms"],
            None if row["tombstone"] else row["offset"],
        )
        for row in rows
    }
    return [found[place] for place in sorted(found)]


def log_ends_of(rows: Iterable[Mapping[str, Any]]) -> list[LogEndRow]:
    """Return the samples of the table ``ends``."""
    return [
        LogEndRow(
            Log(row["cluster"], row["topic"], row["partition"]),
            Sample(row["observed_at_ms"], row["end_offset"]),
            row["start_offset"],
        )
        for row in rows
    ]


def assignments_of(rows: Iterable[Mapping[str, Any]]) -> list[Assignment]:
    """Return each record of the table ``members`` once, in the order of the log."""
    records = defaultdict[tuple[Any, ...], Rows](list)
    for row in rows:
        place = row["cluster"], row["log_partition"], row["log_offset"]
        if dict(row) not in records[place]:
            records[place].append(dict(row))
    return [_assignment(records[place]) for place in sorted(records)]


def _assignment(rows: Rows) -> Assignment:
    first = rows[0]
    owned = [row for row in rows if row.get("topic") is not None]
    return Assignment(
        (first["cluster"], first["consumer"]),
        first["log_offset"],
        first["log_ts_ms"],
        first.get("generation"),
        first.get("protocol"),
        first.get("leader"),
        frozenset(row["member_id"] for row in rows if row.get("member_id") is not None),
        {(row["topic"], row["partition"]): _owner(row) for row in owned},
        {(row["topic"], row["partition"]): row.get("instance_id") or row["member_id"] for row in owned},
    )


def _owner(row: Mapping[str, Any]) -> str:
    return str(row.get("client_host") or row.get("client_id") or row["member_id"])


# --- rebalances ---


def rebalances(assignments: Iterable[Assignment]) -> Rows:
    """Make a row for each record of a group's metadata whose generation differs from the record before."""
    groups = defaultdict[tuple[str, str], list[Assignment]](list)
    for one in assignments:
        groups[one.group].append(one)
    rows = []
    for (cluster, consumer), records in groups.items():
        before: Assignment | None = None
        for one in records:
            if one.generation is not None and (before is None or one.generation != before.generation):
                rows.append({"cluster": cluster, "consumer": consumer, **_rebalance(before, one)})
            before = one
    return rows


def _rebalance(before: Assignment | None, now: Assignment) -> dict[str, Any]:
    moved = None
    if before is not None:
        places = before.identity_of.keys() | now.identity_of.keys()
        moved = sum(before.identity_of.get(place) != now.identity_of.get(place) for place in places)
    return {
        "generation": now.generation,
        "at": now.at_ms,
        "members": len(now.members),
        "protocol": now.protocol,
        "leader": now.leader,
        "moved_partitions": moved,
        "day": day_text(now.at_ms),
    }
