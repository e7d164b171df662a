"""Makes Burrow's verdict on each consumer group of a bucket.

The rules are those of Burrow's storage, `karrot.burrow.rules` and `karrot.burrow.notification_rules`. Partitions are
judged as arrays, and groups one by one.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from karrot.burrow.notification_rules import notify
from karrot.burrow.rules import as_written, complete_share, group_status
from karrot.event import LagEvent, PartitionLag, Source, Status
from karrot.pipeline.evaluate.bucket_records import NewCommits, NewMembers, NewRecords, take, without_groups
from karrot.pipeline.evaluate.bucket_state import (
    BucketState,
    EvaluateRules,
    GroupMemory,
    LogEnds,
    Owners,
    Partitions,
    source_key,
)
from karrot.pipeline.evaluate.ring_arrays import windows_of
from karrot.pipeline.window_arrays.judge_windows import Codes, Ints, begins, judged, newest, recent_least
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.text import EPOCH

_NOBODY = ("", "")


class _Judged(NamedTuple):
    codes: Codes
    lag: Ints
    worst: Ints
    total: Ints
    largest: Ints
    begin: Ints

    @classmethod
    def of(cls, state: BucketState, log_ends: LogEnds, rules: RuleSet, now: int) -> "_Judged":
        partitions, count = state.partitions, len(state.groups)
        source = log_ends.source_of(source_key(partitions.topic_key, partitions.partition))
        at = newest(log_ends.ends.source, log_ends.ends.observed_ms, source, np.full(len(source), now * 1000 + 999))
        window = windows_of(partitions.rings)
        end = log_ends.ends.offset[at] if len(source) else source
        least = recent_least(log_ends.ends, rules.intervals)[at] if len(source) else source
        is_known = (partitions.rings.filled > 0) & (at >= 0)
        codes = judged(window, end, least, np.full(len(source), now), rules)
        codes = np.where(is_known, codes, Status.OK).astype(np.int8)
        lag = np.where(is_known, np.maximum(0, end - window.offset), 0)
        worst, total = np.full(count, int(Status.OK)), np.zeros(count, np.int64)
        np.maximum.at(worst, partitions.group, codes)
        np.add.at(total, partitions.group, lag)
        by_lag = np.lexsort((-lag, partitions.group))
        largest = np.full(count, -1, np.int64)
        first = by_lag[begins(partitions.group[by_lag])]
        largest[partitions.group[first]] = first
        return cls(codes, lag, worst, total, largest, np.searchsorted(partitions.group, np.arange(count + 1)))


def _without_commits(group: GroupMemory, partitions: Partitions, owners: Owners, rows: Ints) -> Iterator[PartitionLag]:
    """Yield the partitions of the group's topics on which the group has not committed."""
    committed = set(zip(partitions.topic[rows].tolist(), partitions.partition[rows].tolist(), strict=True))
    for topic, count in group.listed.items():
        for number in range(count):
            if (topic, number) not in committed:
                owner, client_id = owners.get((topic, number), _NOBODY)
                yield PartitionLag(
                    topic=topic,
                    partition=number,
                    owner=owner,
                    client_id=client_id,
                    status_text=Status.OK.name,
                    current_lag=0,
                    complete=0.0,
                )


def _partition(partitions: Partitions, found: _Judged, owners: Owners, row: int) -> PartitionLag:
    rings, topic, number = partitions.rings, str(partitions.topic[row]), int(partitions.partition[row])
    owner, client_id = owners.get((topic, number), _NOBODY)
    return PartitionLag(
        topic=topic,
        partition=number,
        owner=owner,
        client_id=client_id,
        status_text=Status(int(found.codes[row])).name,
        start=rings.sample(row, newest=False),
        end=rings.sample(row, newest=True),
        current_lag=int(found.lag[row]),
        complete=as_written(float(np.float32(max(1, int(rings.filled[row])) / rings.intervals))),
    )


COMMIT: Final = "commit"
MEMBER: Final = "member"
DELETION: Final = "deletion"
"""The kinds of rows of new records. A group with new members has a row for each member and partition."""

OUT: Final = (
    "bucket int, state binary, groups bigint, partitions bigint, notifications bigint, consumer string, event string"
)
"""The columns of the result: a row with the new state and its size, and a row for each notification."""

_ARROW_TYPES: Final = {"int": pa.int32(), "binary": pa.binary(), "bigint": pa.int64(), "string": pa.string()}
_OUT: Final = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in (each.split() for each in OUT.split(", "))])


class StateSize(NamedTuple):
    buckets: int = 0
    groups: int = 0
    partitions: int = 0
    notifications: int = 0


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Adds the records of a batch to a bucket and, if ``judges`` is true, judges the groups of the bucket.

    ``batch`` is a string that is unique to the batch.
    """

    asked: EvaluateRules
    cluster: str
    now_ms: int
    batch: str
    judges: bool = True

    def of(self, shared: Any) -> Callable[[pa.Table, pa.Table], pa.Table]:
        """Return a function for Spark's ``applyInArrow`` that maps the old state and the new records to rows of `OUT`.

        ``shared`` is a broadcast variable with the `LogEnds`.
        """
        return lambda before, new: self._after(before, new, shared.value)

    def _after(self, before: pa.Table, new: pa.Table, log_ends: LogEnds) -> pa.Table:
        intervals = self.asked.rules.intervals
        bucket = (before if len(before) else new).column("bucket")[0].as_py()
        state = BucketState.empty(intervals)
        if len(before):
            state = BucketState.from_bytes(before.column("state")[0].as_py(), intervals)
        records = new_records(new)
        places = ((each.topic_key, each.partition) for each in (state.partitions, records.commits))
        log_ends = log_ends.only(np.concatenate([source_key(*place) for place in places]))
        state, sent = take(state, records, log_ends, self.asked), list[LagEvent]()
        if self.judges:
            state, sent = self.judge(state, log_ends)
        groups = sum(1 for each in state.groups if each.last_commit_ms)
        size = {"groups": groups, "partitions": len(state.partitions.group), "notifications": len(sent)}
        rows: list[dict[str, Any]] = [{"bucket": bucket, "state": state.to_bytes(), **size}]
        rows += [
            {"bucket": bucket, "consumer": each.consumer, "event": msgspec.json.encode(each).decode()} for each in sent
        ]
        return pa.Table.from_pylist(rows, _OUT)

    def judge(self, state: BucketState, log_ends: LogEnds) -> tuple[BucketState, list[LagEvent]]:
        """Judge every group of the bucket, and return the notifications that Burrow would send.

        The new state lacks expired groups, and groups that the filter no longer chooses.
        """
        asked, now = self.asked, self.now_ms // 1000
        expiry_ms = (now - asked.expire_group) * 1000
        old = {each.key for each in state.groups if expiry_ms > each.alive_ms or not asked.groups.has(each.name)}
        state = without_groups(state, old)
        found = _Judged.of(state, log_ends, asked.rules, now)
        sent: list[LagEvent] = []
        for number, group in enumerate(state.groups):
            if not group.last_commit_ms:
                continue  # a group without a commit gets no verdict
            status = group_status([Status(int(found.worst[number]))])
            notification = notify(
                group.notified, status, self.now_ms, asked.notifier, partial(self._new_id, group.name)
            )
            if notification is None:
                continue
            event = self._event(state, found, number, status)
            if notification.incident is not None:
                start = EPOCH + timedelta(milliseconds=notification.incident.start_ms)
                event = event._replace(incident_id=notification.incident.id, incident_start=start)
            sent.append(event)
        return state, sent

    def _new_id(self, group: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.batch}/{self.cluster}/{group}")

    def _event(self, state: BucketState, found: _Judged, number: int, status: Status) -> LagEvent:
        group, partitions = state.groups[number], state.partitions
        owners, largest = group.owners(), int(found.largest[number])
        rows = np.arange(found.begin[number], found.begin[number + 1])
        count, rings = sum(group.listed.values()), partitions.rings
        full = int((rings.filled[rows] == rings.intervals).sum())
        listed = rows if self.asked.lists_all else rows[found.codes[rows] > Status.OK]
        return LagEvent(
            self.cluster,
            group.name,
            status.name,
            int(found.total[number]),
            self.now_ms,
            Source.KAFKA,
            complete=complete_share(full, count) if count else 0.0,
            partition_count=count,
            max_lag=None if largest < 0 else _partition(partitions, found, owners, largest),
            partitions=(
                *(_partition(partitions, found, owners, row) for row in listed.tolist()),
                *(_without_commits(group, partitions, owners, rows) if self.asked.lists_all else ()),
            ),
        )


def new_records(table: pa.Table) -> NewRecords:
    of_kind = {kind: table.filter(pc.equal(table.column("kind"), kind)) for kind in (COMMIT, MEMBER, DELETION)}
    deleted: dict[int, int] = {}
    columns = (of_kind[DELETION].column(name).to_pylist() for name in ("group_key", "order"))
    for key, order in zip(*columns, strict=True):
        deleted[key] = max(order, deleted.get(key, -1))
    return NewRecords(_new_commits(of_kind[COMMIT]), deleted, _new_members(of_kind[MEMBER]))


def _new_commits(table: pa.Table) -> NewCommits:
    columns: list[Any] = []
    for name in NewCommits._fields:
        column = table.column(name)
        is_text = name in {"group", "topic"}
        columns.append(np.array(column.to_pylist(), np.object_) if is_text else column.to_numpy().astype(np.int64))
    return NewCommits(*columns)


def _new_members(table: pa.Table) -> dict[int, NewMembers]:
    newest: dict[int, list[dict[str, Any]]] = {}
    for row in table.sort_by("order").to_pylist():
        rows = newest.setdefault(row["group_key"], [])
        if rows and rows[0]["order"] != row["order"]:
            rows.clear()
        rows.append(row)
    return {
        key: NewMembers(rows[0]["group"], rows[0]["order"], rows[0]["at_ms"], _members_text(rows))
        for key, rows in newest.items()
    }


def _members_text(rows: list[dict[str, Any]]) -> str:
    """Return the members of one record as JSON for `karrot.pipeline.evaluate.bucket_state.GroupMemory`."""
    members: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in rows:
        if row["topic"] is not None:
            assigned = members.setdefault((row["owner"] or "", row["client_id"] or ""), {})
            assigned.setdefault(row["topic"], []).append(row["partition"])
    return json.dumps([[*member, assigned] for member, assigned in members.items()], separators=(",", ":"))
