"""Makes Burrow's verdict on each consumer group of a bucket.

The rules are those of Burrow's storage, `karrot.burrow.rules` and `karrot.burrow.notification_rules`. Partitions are
judged as arrays, and groups one by one.

What Burrow does not know follows the rules of `karrot.watch`: log starts, offsets past the log end, topics that a group
has left, and partitions without a commit. A poll of `karrot.watch` corresponds to a log-end sample.
"""

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
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
from karrot.event import BEYOND_END, LEFT, NEVER_COMMITTED, LagEvent, PartitionLag, Source, Status
from karrot.pipeline.evaluate.bucket_records import NewCommits, NewMembers, NewRecords, take, without_groups
from karrot.pipeline.evaluate.bucket_state import (
    BucketState,
    EvaluateRules,
    GroupMemory,
    LogEnds,
    Owners,
    Partitions,
    Uncommitted,
    owners_of,
    source_key,
)
from karrot.pipeline.evaluate.ring_arrays import windows_of
from karrot.pipeline.window_arrays.judge_windows import (
    Bools,
    Codes,
    Ints,
    beyond_end,
    judged,
    newest,
    recent_least,
    unread_end,
)
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.text import EPOCH

_NOBODY = ("", "")
_UNKNOWN, _UNCOUNTED = -1, -2
"""The lag of a partition whose lag is unknown, and of a partition of a topic that the group has left."""

_OLD_MS = 5 * 60_000


class _Judged(NamedTuple):
    """The verdicts on partitions, and the ``worst`` of each group, whose partitions are ``begin[i]:begin[i + 1]``."""

    codes: Codes
    lag: Ints
    is_beyond: Bools
    log_end: Ints
    log_start: Ints
    worst: Ints
    begin: Ints

    @classmethod
    def of(cls, state: BucketState, log_ends: LogEnds, rules: RuleSet, now: int, owners: Sequence[Owners]) -> "_Judged":
        partitions, count, ends = state.partitions, len(state.groups), log_ends.ends
        begin = np.searchsorted(partitions.group, np.arange(count + 1))
        source = log_ends.source_of(source_key(partitions.topic_key, partitions.partition))
        at = newest(ends.source, ends.observed_ms, source, np.full(len(source), now * 1000 + 999))
        window, seen_ms = windows_of(partitions.rings), partitions.rings.seen_ms[:, -1]
        least = recent_least(ends, rules.intervals)[at]
        end = unread_end(ends, at, window.offset)
        is_known = (partitions.rings.filled > 0) & (at >= 0)
        codes = np.where(is_known, judged(window, end, least, np.full(len(source), now), rules), Status.OK)
        is_beyond = is_known & beyond_end(ends, at, window.offset, seen_ms)
        codes[is_beyond] = Status.ERR
        is_low = (ends.observed_ms[at] > seen_ms) & (ends.offset[at] < window.offset)
        is_old = now * 1000 - ends.observed_ms[at] > _OLD_MS
        lag = np.where(is_known & ~is_low & ~is_old, end - window.offset, _UNKNOWN)
        first = np.maximum(at - rules.intervals + 1, 0)  # of a window of samples
        has_window = (ends.source[first] == source) & (at - first == rules.intervals - 1)
        for number, group in enumerate(state.groups):
            until_ms = now * 1000 if owners[number] else group.members_ms
            for topic, since_ms in _unread(group, owners[number]).items():
                rows = begin[number] + np.flatnonzero(partitions.topic[begin[number] : begin[number + 1]] == topic)
                silent_ms = until_ms - max(since_ms, seen_ms[rows].max(initial=0))
                if owners[number]:  # as in `watch`, no alarm from the second poll on: the topic is probably left
                    is_second = silent_ms >= now * 1000 - ends.observed_ms[np.maximum(at[rows] - 1, 0)]
                    codes[rows[is_second & ~is_beyond[rows]]] = Status.OK
                left = rows[has_window[rows] & (silent_ms >= now * 1000 - ends.observed_ms[first[rows]])]
                codes[left], lag[left] = Status.OK, _UNCOUNTED
        worst = np.full(count, int(Status.OK))
        np.maximum.at(worst, partitions.group, codes)
        return cls(codes.astype(np.int8), lag, is_beyond, ends.offset[at], ends.start[at], worst, begin)


def _unread(group: GroupMemory, owners: Owners) -> Mapping[str, int]:
    """Return since when the group's members read other topics, but not these. A topic that was left stays left."""
    read = {topic for topic, _ in owners}
    if not read or read >= group.listed.keys():
        return {} if read else group.unread
    return {topic: group.unread.get(topic, group.members_ms) for topic in group.listed if topic not in read}


def _without_commit(topic: str, partition: int, owners: Owners, *, is_shown: bool) -> PartitionLag:
    owner, client_id = owners.get((topic, partition), _NOBODY)
    return PartitionLag(
        topic=topic,
        partition=partition,
        owner=owner,
        client_id=client_id,
        status_text=NEVER_COMMITTED if is_shown else Status.OK.name,
        complete=0.0,
    )


def _partition(partitions: Partitions, found: _Judged, owners: Owners, row: int) -> PartitionLag:
    rings, topic, number = partitions.rings, str(partitions.topic[row]), int(partitions.partition[row])
    owner, client_id = owners.get((topic, number), _NOBODY)
    lag, log_start = int(found.lag[row]), int(found.log_start[row])
    has_deleted = log_start > rings.offset[row, -1]
    complete = as_written(float(np.float32(max(1, int(rings.filled[row])) / rings.intervals)))
    status = LEFT if lag == _UNCOUNTED else BEYOND_END if found.is_beyond[row] else Status(int(found.codes[row])).name
    return PartitionLag(
        topic=topic,
        partition=number,
        owner=owner,
        client_id=client_id,
        status_text=status,
        start=rings.sample(row, newest=False),
        end=rings.sample(row, newest=True),
        current_lag=lag if lag >= 0 else None,
        complete=0.0 if lag == _UNKNOWN else complete,
        log_end=int(found.log_end[row]) if has_deleted or lag < 0 else None,
        log_start=log_start if has_deleted else None,
    )


COMMIT: Final = "commit"
MEMBER: Final = "member"
DELETION: Final = "deletion"
"""The kinds of rows of new records. A group with new members has a row for each member and partition."""

OUT: Final = (
    "bucket int, state binary, groups bigint, partitions bigint, notifications bigint, consumer string, change string, "
    "event string"
)
"""The columns of the result: a row with the new state and its size, and a row for each notification.

Two notifications of a group with the same ``change`` have the same status and incident.
"""

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
        bucket = (before if len(before) else new).column("bucket")[0].as_py()
        old, empty = before.column("state").to_pylist(), BucketState.empty(self.asked.rules.intervals)
        state = BucketState.from_bytes(old[0]) if old else empty
        records = new_records(new)
        places = ((each.topic_key, each.partition) for each in (state.partitions, records.commits))
        members = {*(each.members for each in state.groups), *(each.members for each in records.members.values())}
        read = {topic for each in members for topic, _ in owners_of(each)} & log_ends.topics.keys()
        counts = ((np.array(log_ends.topic_keys[topic]), log_ends.topics[topic]) for topic in read)
        of_topics = (source_key(key, np.arange(count)) for key, count in counts)
        log_ends = log_ends.only(np.concatenate([*(source_key(*place) for place in places), *of_topics]))
        state, sent = take(state, records, log_ends, self.asked), list[LagEvent]()
        if self.judges:
            state, sent = self.judge(state, log_ends)
        groups = sum(1 for each in state.groups if each.last_commit_ms)
        size = {"groups": groups, "partitions": len(state.partitions.group), "notifications": len(sent)}
        rows: list[dict[str, Any]] = [{"bucket": bucket, "state": state.to_bytes(), **size}]
        for each in sent:
            change, event = f"{each.status_text} {each.incident_id}", msgspec.json.encode(each).decode()
            rows.append({"bucket": bucket, "consumer": each.consumer, "change": change, "event": event})
        return pa.Table.from_pylist(rows, _OUT)

    def judge(self, state: BucketState, log_ends: LogEnds) -> tuple[BucketState, list[LagEvent]]:
        """Judge every group of the bucket, and return the notifications that Burrow would send.

        The new state lacks expired groups, and groups that the filter no longer chooses.
        """
        asked, now = self.asked, self.now_ms // 1000
        expiry_ms = (now - asked.expire_group) * 1000
        old = {each.key for each in state.groups if each.is_older(expiry_ms) or not asked.groups.has(each.name)}
        state = without_groups(state, old)
        owners = [owners_of(each.members) for each in state.groups]
        found = _Judged.of(state, log_ends, asked.rules, now, owners)
        sent: list[LagEvent] = []
        for number, group in enumerate(state.groups):
            rows = slice(int(found.begin[number]), int(found.begin[number + 1]))
            places = self._uncommitted(group, owners[number], log_ends, state.partitions, rows)
            state.groups[number] = group._replace(uncommitted=[*places])
            seen = [each for each, is_shown in places.items() if is_shown]
            if not group.last_commit_ms and not seen:
                continue  # nothing is known about the group yet
            is_error = any(each.owned >= asked.rules.intervals for each in seen)
            status = Status.ERR if is_error else group_status([Status(int(found.worst[number]))])
            notification = notify(
                group.notified, status, self.now_ms, asked.notifier, partial(self._new_id, group.name)
            )
            if notification is None:
                continue
            event = self._event(
                state, found, number, status=status, owners=owners[number], never_committed={each[:2] for each in seen}
            )
            if notification.incident is not None:
                start = EPOCH + timedelta(milliseconds=notification.incident.start_ms)
                event = event._replace(incident_id=notification.incident.id, incident_start=start)
            sent.append(event)
        return state, sent

    def _new_id(self, group: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.batch}/{self.cluster}/{group}")

    def _uncommitted(
        self, group: GroupMemory, owners: Owners, log_ends: LogEnds, partitions: Partitions, rows: slice
    ) -> dict[Uncommitted, bool]:
        """Return the partitions that the group reads without a commit, and whether the verdict shows each of them.

        A partition is shown after half a window. A group without members keeps its partitions.
        """
        read = {topic for topic, _ in owners} & log_ends.topics.keys()
        count = sum(log_ends.topics.get(topic, 0) for topic in read | group.listed.keys())
        if not group.uncommitted and (not owners or count == rows.stop - rows.start):
            return {}
        window, known, found = self.asked.rules.intervals, {each[:2]: each for each in group.uncommitted}, {}
        places = {(topic, number) for topic in read for number in range(log_ends.topics[topic])} | owners.keys()
        for at in sorted((places if owners else known.keys()) - partitions.places(rows)):
            ends = log_ends.of(*at, self.now_ms)
            if not len(ends.offset):
                continue
            first, is_owned = int(np.searchsorted(ends.observed_ms, group.members_ms, side="right")) - 1, at in owners
            new = Uncommitted(*at, int(ends.offset[max(0, first)]), int(ends.observed_ms[max(0, first)]))
            one = known.get(at, new)
            first_end = one.first_end if is_owned or one.owned >= 0 else int(ends.offset[-1])
            has_records = ends.offset > np.maximum(first_end, ends.start)
            is_later, owned = ends.observed_ms > one.seen_ms, one.owned
            if is_owned:
                owned = max(0, owned) + int((is_later & has_records).sum()) if has_records[-1] else 0
            polls = one.polls + int(is_later.sum())
            found[Uncommitted(*at, first_end, int(ends.observed_ms[-1]), polls, owned)] = 2 * polls >= window
        return found

    def _event(
        self,
        state: BucketState,
        found: _Judged,
        number: int,
        *,
        status: Status,
        owners: Owners,
        never_committed: Collection[tuple[str, int]],
    ) -> LagEvent:
        group, partitions, rings = state.groups[number], state.partitions, state.partitions.rings
        rows = np.arange(found.begin[number], found.begin[number + 1])
        is_left = found.lag[rows] == _UNCOUNTED
        counted, known, left = rows[~is_left], rows[found.lag[rows] >= 0], {*partitions.topic[rows[is_left]].tolist()}
        of_topics = {
            (topic, each) for topic, count in group.listed.items() if topic not in left for each in range(count)
        }
        read = of_topics.union(never_committed)
        others = {*never_committed}
        if self.asked.lists_all and len(read) > len(counted):
            others = read - partitions.places(counted)
        uncommitted = [_without_commit(*at, owners, is_shown=at in never_committed) for at in sorted(others)]
        listed = rows if self.asked.lists_all else rows[found.codes[rows] > Status.OK]
        worst = counted[np.argsort(-found.lag[counted], kind="stable")[:1]].tolist()
        return LagEvent(
            self.cluster,
            group.name,
            status.name,
            int(found.lag[known].sum()) if len(known) else None,
            self.now_ms,
            Source.KAFKA,
            complete=complete_share(int((rings.filled[known] == rings.intervals).sum()), max(1, len(read))),
            partition_count=len(read),
            max_lag=next((_partition(partitions, found, owners, row) for row in worst), next(iter(uncommitted), None)),
            partitions=(*(_partition(partitions, found, owners, row) for row in listed.tolist()), *uncommitted),
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
