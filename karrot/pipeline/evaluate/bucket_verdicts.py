"""Makes Burrow's verdict on each consumer group of a bucket.

The rules are those of `karrot.burrow.storage`, `karrot.burrow.rules` and `karrot.burrow.notifier`. The work for each
partition is in arrays. Python looks at a group once for each verdict.
"""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import numpy as np

from karrot.burrow.notifier import notify
from karrot.burrow.rules import as_written, complete_share, group_status
from karrot.event import LagEvent, PartitionLag, Source, Status
from karrot.pipeline.evaluate.bucket_records import without_groups
from karrot.pipeline.evaluate.bucket_state import BucketState, GroupMemory, Owners, Partitions
from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
from karrot.pipeline.evaluate.log_end_lookup import LogEnds, source_key
from karrot.pipeline.evaluate.ring_arrays import windows_of
from karrot.pipeline.window_arrays.commit_arrays import Ints, begins, newest, recent_least
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.pipeline.window_arrays.window_facts import Codes, judged
from karrot.text import EPOCH

_NOBODY = ("", "")


class VerdictMoment(NamedTuple):
    """The cluster and the time of verdicts. ``new_id`` makes the id of a new incident of a group."""

    cluster: str
    now_ms: int
    new_id: Callable[[str], uuid.UUID]


class Notification(NamedTuple):
    """A verdict to send, with its incident."""

    event: LagEvent
    is_close: bool


def evaluated(
    state: BucketState,
    log_ends: LogEnds,
    asked: EvaluateRules,
    moment: VerdictMoment,
) -> tuple[BucketState, list[Notification]]:
    """Judge every group of the bucket, and return the notifications that Burrow would send.

    Groups without a commit for too long are forgotten, and those that an earlier command read and this one does not.
    """
    now_ms, now = moment.now_ms, moment.now_ms // 1000
    expiry_ms = (now - asked.expire_group) * 1000
    old = {
        each.key
        for each in state.groups
        if expiry_ms > each.alive_ms or not any(some.has(each.name) for some in asked.read)
    }
    state = without_groups(state, old)
    found = _Judged.of(state.partitions, log_ends, asked.rules, now)
    sums = _Sums.of(found, state.partitions.group, len(state.groups))
    sent: list[Notification] = []
    for number, group in enumerate(state.groups):
        if not group.last_commit_ms or not asked.sent.has(group.name):
            continue  # without a commit, only the group's members are known
        of_group = sums.of_group(number)
        new_id = partial(moment.new_id, group.name)
        told = notify(group.notified, of_group.status, now_ms, asked.notifier, new_id)
        if told is None:
            continue
        event = _event(state, found, of_group, moment, lists_all=asked.lists_all)
        if told.incident is not None:
            start = EPOCH + timedelta(milliseconds=told.incident.start_ms)
            event = event._replace(incident_id=told.incident.id, incident_start=start)
        sent.append(Notification(event, told.is_close))
    return state, sent


class _Judged(NamedTuple):
    """The status and the lag of each partition."""

    codes: Codes
    lag: Ints

    @classmethod
    def of(cls, partitions: Partitions, log_ends: LogEnds, rules: RuleSet, now: int) -> "_Judged":
        source = log_ends.source_of(source_key(partitions.topic_key, partitions.partition))
        at = newest(log_ends.ends.source, log_ends.ends.observed_ms, source, np.full(len(source), now * 1000 + 999))
        window = windows_of(partitions.rings)
        end = log_ends.ends.offset[at] if len(source) else source
        least = recent_least(log_ends.ends, rules.intervals)[at] if len(source) else source
        is_known = (partitions.rings.filled > 0) & (at >= 0)
        codes = judged(window, end, least, np.full(len(source), now), rules)
        return cls(
            np.where(is_known, codes, Status.OK).astype(np.int8),
            np.where(is_known, np.maximum(0, end - window.offset), 0),
        )


class _GroupSums(NamedTuple):
    """The sums of the group with this ``number``, whose rows are from ``begin`` up to ``stop``."""

    number: int
    status: Status
    total: int
    largest: int
    begin: int
    stop: int


class _Sums(NamedTuple):
    """By group: the worst status, the total lag, the row of the largest lag, and the first row."""

    worst: Ints
    total: Ints
    largest: Ints
    begin: Ints

    def of_group(self, number: int) -> _GroupSums:
        """The sums of one group."""
        status = group_status([Status(int(self.worst[number]))])
        largest, begin, stop = int(self.largest[number]), int(self.begin[number]), int(self.begin[number + 1])
        return _GroupSums(number, status, int(self.total[number]), largest, begin, stop)

    @classmethod
    def of(cls, found: _Judged, group: Ints, count: int) -> "_Sums":
        worst, total = np.full(count, int(Status.OK)), np.zeros(count, np.int64)
        np.maximum.at(worst, group, found.codes)
        np.add.at(total, group, found.lag)
        by_lag = np.lexsort((-found.lag, group))
        largest = np.full(count, -1, np.int64)
        first = by_lag[begins(group[by_lag])]
        largest[group[first]] = first
        return cls(worst, total, largest, np.searchsorted(group, np.arange(count + 1)))


def _event(state: BucketState, found: _Judged, sums: _GroupSums, moment: VerdictMoment, *, lists_all: bool) -> LagEvent:
    group, partitions = state.groups[sums.number], state.partitions
    owners = group.owners()
    rows = np.arange(sums.begin, sums.stop)
    count, full = sum(group.listed.values()), int((partitions.rings.filled[rows] == partitions.rings.intervals).sum())
    listed = rows if lists_all else rows[found.codes[rows] > Status.OK]
    return LagEvent(
        moment.cluster,
        group.name,
        sums.status.name,
        sums.total,
        moment.now_ms,
        Source.KAFKA,
        complete=complete_share(full, count) if count else 0.0,
        partition_count=count,
        max_lag=None if sums.largest < 0 else _partition(partitions, found, owners, sums.largest),
        partitions=(
            *(_partition(partitions, found, owners, row) for row in listed.tolist()),
            *(_without_commits(group, partitions, owners, rows) if lists_all else ()),
        ),
    )


def _without_commits(group: GroupMemory, partitions: Partitions, owners: Owners, rows: Ints) -> Iterator[PartitionLag]:
    """The partitions of the group's topics on which it has not committed."""
    committed = set(zip(partitions.topic[rows].tolist(), partitions.partition[rows].tolist(), strict=True))
    for topic, count in group.listed.items():
        for number in range(count):
            if (topic, number) not in committed:
                owner = owners.get((topic, number), _NOBODY)
                yield PartitionLag(topic, number, Status.OK.name, 0, None, None, *owner, complete=0.0)


def _partition(partitions: Partitions, found: _Judged, owners: Owners, row: int) -> PartitionLag:
    rings, topic, number = partitions.rings, str(partitions.topic[row]), int(partitions.partition[row])
    return PartitionLag(
        topic,
        number,
        Status(int(found.codes[row])).name,
        int(found.lag[row]),
        rings.sample(row, newest=False),
        rings.sample(row, newest=True),
        *owners.get((topic, number), _NOBODY),
        complete=as_written(float(np.float32(max(1, int(rings.filled[row])) / rings.intervals))),
    )
