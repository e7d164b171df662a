"""Judges one bucket in a task of Spark. A worker has only numpy and pyarrow, so nothing else is imported here."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from karrot.event import Source
from karrot.pipeline.evaluate.bucket_records import NewCommits, NewMembers, NewRecords, take
from karrot.pipeline.evaluate.bucket_state import BucketState
from karrot.pipeline.evaluate.bucket_verdicts import Notification, VerdictMoment, evaluated
from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
from karrot.pipeline.evaluate.log_end_lookup import LogEnds, source_key

COMMIT: Final = "commit"
MEMBER: Final = "member"
DELETION: Final = "deletion"
"""The kinds of the rows of new records. A group with new members has a row for each member and partition."""

OUT: Final = (
    "bucket int, state binary, groups bigint, partitions bigint, notifications bigint, consumer string, event string, "
    "is_close boolean"
)
"""The columns of the result: a row with the new state and its size, and a row for each notification."""

_OUT: Final = pa.schema(
    {
        "bucket": pa.int32(),
        "state": pa.binary(),
        "groups": pa.int64(),
        "partitions": pa.int64(),
        "notifications": pa.int64(),
        "consumer": pa.string(),
        "event": pa.string(),
        "is_close": pa.bool_(),
    }
)


class StateSize(NamedTuple):
    """The numbers of buckets, groups, partitions and notifications in the state after a batch."""

    buckets: int = 0
    groups: int = 0
    partitions: int = 0
    notifications: int = 0


class Shared(Protocol):
    """A broadcast variable with the log ends."""

    @property
    def value(self) -> LogEnds:
        """The log ends."""


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Judges a bucket after the records of a batch. ``batch`` is a text that no other batch has.

    Without ``judges``, the bucket only takes the records.
    """

    asked: EvaluateRules
    cluster: str
    now_ms: int
    batch: str
    judges: bool = True

    def of(self, log_ends: Shared) -> Callable[[pa.Table, pa.Table], pa.Table]:
        """The function for Spark's ``applyInArrow``: from the old state and the new records to the rows of `OUT`."""

        def judge(before: pa.Table, new: pa.Table) -> pa.Table:
            return self._judge(before, new, log_ends.value)

        return judge

    def _judge(self, before: pa.Table, new: pa.Table, log_ends: LogEnds) -> pa.Table:
        intervals = self.asked.rules.intervals
        bucket = (before if len(before) else new).column("bucket")[0].as_py()
        state = BucketState.empty(intervals)
        if len(before):
            state = BucketState.from_bytes(before.column("state")[0].as_py(), intervals)
        records = new_records(new)
        places = ((each.topic_key, each.partition) for each in (state.partitions, records.commits))
        log_ends = log_ends.only(np.concatenate([source_key(*place) for place in places]))
        state = take(state, records, log_ends, self.asked)
        sent = list[Notification]()
        if self.judges:
            moment = VerdictMoment(self.cluster, self.now_ms, self._new_id)
            state, sent = evaluated(state, log_ends, self.asked, moment)
        groups = sum(1 for each in state.groups if each.last_commit_ms)
        size = {"groups": groups, "partitions": len(state.partitions.group), "notifications": len(sent)}
        rows: list[dict[str, Any]] = [{"bucket": bucket, "state": state.to_bytes(), **size}]
        rows += [
            {
                "bucket": bucket,
                "consumer": each.event.consumer,
                "event": json.dumps(each.event, default=_as_text),
                "is_close": each.is_close,
            }
            for each in sent
        ]
        return pa.Table.from_pylist(rows, _OUT)

    def _new_id(self, group: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.batch}/{self.cluster}/{group}")


def _as_text(value: datetime | Source) -> str:
    """A time or a source in the form that msgspec reads."""
    return value.isoformat() if isinstance(value, datetime) else str(value.value)


def new_records(table: pa.Table) -> NewRecords:
    """Read the rows of new records."""
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
    """The newest metadata of each group."""
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
    """The members of one record, in the form of `karrot.pipeline.evaluate.bucket_state.GroupMemory`."""
    members: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in rows:
        if row["topic"] is not None:
            assigned = members.setdefault((row["owner"] or "", row["client_id"] or ""), {})
            assigned.setdefault(row["topic"], []).append(row["partition"])
    return json.dumps([[*member, assigned] for member, assigned in members.items()], separators=(",", ":"))
