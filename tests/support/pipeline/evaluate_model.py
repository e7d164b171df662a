"""Random batches of commits, log ends and deletions. Burrow's reference model and the rules of `watch` judge them."""

import uuid
from collections.abc import Container, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from karrot.burrow.notification_rules import NotifiedGroup, notify
from karrot.burrow.rules import TrackedPartition, Window, complete_share, evaluate_group
from karrot.event import BEYOND_END, NEVER_COMMITTED, LagEvent, LogEnd, PartitionLag, Source, Status, TopicPartition
from karrot.pipeline.evaluate.bucket_state import EvaluateRules
from karrot.watch.cluster_interface import Description, GroupMember
from karrot.watch.rings import BEYOND_END_POLLS, Ring, Rings
from support.burrow.burrow_storage import Storage


class Commit(NamedTuple):
    group: str
    topic: str
    partition: int
    order: int
    offset: int
    timestamp_ms: int
    at_ms: int


class Rebalance(NamedTuple):
    """A record of a group's metadata: who owns which partitions from then on."""

    group: str
    order: int
    at_ms: int
    owners: dict[tuple[str, int], tuple[str, str]]


class Batch(NamedTuple):
    """What happens in a batch: log ends come first, then commits, deletions and rebalances in the order of the log."""

    now: int
    ends: dict[tuple[str, int], int]
    commits: list[Commit]
    deleted: dict[str, int]
    rebalances: list[Rebalance]


class _Cluster:
    """Groups that keep up, fall behind, stop, rewind and disappear; topics that grow and are deleted."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.counts = {"t0": 3, "t1": 1, "t2": 2}
        self.ends = {(topic, number): 100 for topic, count in self.counts.items() for number in range(count)}
        self.committed = dict[tuple[str, str, int], int]()
        self.mood = dict[tuple[str, str, int], str]()
        self.order = 0

    def write(self) -> None:
        """Let a minute pass for the topics."""
        rng = self.rng
        if rng.random() < 0.05:
            self.counts["t1"] = 0 if self.counts["t1"] else 2
        if rng.random() < 0.05:
            self.counts["t0"] += 1
        self.ends = {
            (topic, number): self.ends.get((topic, number), 0) + rng.choice((0, 5, 50))
            for topic, count in self.counts.items()
            for number in range(count)
        }

    def commits(self, at_s: int) -> Iterator[Commit]:
        """The commits of all groups at one time."""
        for place in [(group, *of_topic) for group in ("g0", "g1", "g2") for of_topic in self.ends]:
            if self.rng.random() < 0.15:
                self.mood[place] = self.rng.choice(("well", "well", "slow", "stopped", "stuck", "rewinds", "absent"))
            offset = self._offset(place)
            if offset is not None:
                self.order += 1
                self.committed[place] = offset
                at_ms = at_s * 1000 + self.rng.randrange(1000)
                age_ms = self.rng.choice((0, 0, 0, 5_000, 2_000_000))
                yield Commit(*place, self.order, offset, at_ms - age_ms, at_ms)

    def rebalances(self, at_s: int) -> Iterator[Rebalance]:
        """Some groups get other members, or lose all of them."""
        for group in ("g0", "g1", "g2"):
            while self.rng.random() < 0.2:
                self.order += 1
                many = self.rng.randrange(4)
                members = [(f"/10.0.0.{number}", f"client-{self.order}") for number in range(many)]
                yield Rebalance(
                    group, self.order, at_s * 1000, {place: self.rng.choice(members) for place in self.ends if many}
                )

    def _offset(self, place: tuple[str, str, int]) -> int | None:
        offset = self.committed.get(place, 90)
        offsets = {
            "well": self.ends[place[1:]],
            "slow": offset + 2,
            "stuck": offset,
            "rewinds": max(0, offset - 30),
        }
        return offsets.get(self.mood.get(place) or self.rng.choice(("well", "absent")))


def batches(rng: Random, many: int) -> Iterator[Batch]:
    """A batch for each minute."""
    cluster = _Cluster(rng)
    for now in range(1_000_060, 1_000_060 + 60 * many, 60):
        cluster.write()
        commits, rebalances = list[Commit](), list[Rebalance]()
        for step in range(3):
            commits += cluster.commits(now - 59 + 15 * step)
            rebalances += cluster.rebalances(now - 59 + 15 * step)
        deleted = dict[str, int]()
        if commits and rng.random() < 0.05:
            deleted[rng.choice(("g0", "g1"))] = rng.choice(commits).order
        yield Batch(now, cluster.ends, commits, deleted, rebalances)


class EvaluateModel:
    """Burrow's storage, evaluation and notifier for the same batches."""

    def __init__(self, asked: EvaluateRules) -> None:
        rules = asked.rules
        self.asked = asked
        self.storage = Storage(
            intervals=rules.intervals, min_distance=rules.min_distance, expire_group=asked.expire_group
        )
        self.notified = dict[str, NotifiedGroup]()
        self.rings = Rings(rules.intervals)
        self.polls = dict[tuple[str, int], list[LogEnd]]()
        self.seen = dict[tuple[str, str, int], LogEnd]()
        self.owners = dict[str, dict[tuple[str, int], tuple[str, str]]]()

    def take(self, batch: Batch) -> list[LagEvent]:
        topics = {topic for topic, _ in batch.ends}
        for topic in {*self.storage.topics()} - topics:
            self._delete_topic(topic)
        polled = {place: LogEnd((batch.now - 60) * 1000, end) for place, end in batch.ends.items()}
        self.polls = {place: [*self.polls.get(place, []), end] for place, end in polled.items()}
        for (topic, number), end in batch.ends.items():
            count = sum(each == topic for each, _ in batch.ends)
            self.storage.put_log_end(topic, number, end, partition_count=count)
        for group in batch.deleted:
            self.storage.delete_group(group)
            self.rings.forget(group)
            self.notified.pop(group, None)
            self.owners.pop(group, None)
        for rebalance in batch.rebalances:
            if rebalance.order > batch.deleted.get(rebalance.group, -1):
                self.owners[rebalance.group] = rebalance.owners
        for each in batch.commits:
            if each.order > batch.deleted.get(each.group, -1):
                self.seen[each[:3]] = LogEnd(max(each.at_ms, self.polls[each[1:3]][0].at_ms), each.offset)
                self.storage.put_commit(
                    each.group,
                    each.topic,
                    each.partition,
                    each.offset,
                    order=each.order,
                    timestamp_ms=each.timestamp_ms,
                    now=max(each.at_ms // 1000, batch.now - 60),
                )
        self.rings._newest.clear()
        self.rings.logs.clear()  # nothing stays of a deleted topic
        self.rings.see_logs({}, {TopicPartition(*place): end for place, end in batch.ends.items()}, batch.now * 1000)
        groups = sorted({*self.storage.groups(), *self.owners})
        return [told for group in groups if (told := self._judge(group, batch.now))]

    def _judge(self, group: str, now: int) -> LagEvent | None:
        partitions: Sequence[TrackedPartition] | None = ()
        if group in self.storage.groups():
            self._own(group)
            partitions = self.storage.fetch(group, now)
        if partitions is None:
            self.notified.pop(group, None)
            self.owners.pop(group, None)
            self.rings.forget(group)
            return None
        rules = self.asked.rules
        event = evaluate_group(
            "c",
            group,
            partitions,
            now * 1000,
            source=Source.KAFKA,
            show_all=True,
            allowed_lag=rules.allowed_lag,
            minimum_complete=rules.minimum_complete,
        )
        event = self._as_watch(event, group, {TopicPartition(*each[:2]) for each in partitions if any(each.slots)})
        if not partitions and not event.partitions:
            return None
        if not self.asked.lists_all:
            event = event._replace(partitions=tuple(one for one in event.partitions if one.status_text != "OK"))
        known = self.notified.setdefault(group, NotifiedGroup())
        told = notify(known, Status[event.status_text], now * 1000, self.asked.notifier, uuid.uuid4)
        return None if told is None else _named(event, told.incident)

    def _as_watch(self, event: LagEvent, group: str, committed: set[TopicPartition]) -> LagEvent:
        """Mark the partitions without a commit. In these batches, members own all partitions, or there are none."""
        owned = {TopicPartition(*place) for place in self.owners.get(group, ())}
        members = (GroupMember("m", "", "", tuple(owned & self.rings._newest.keys())),) if owned else ()
        described = Description("Stable" if owned else "Empty", members)
        self.rings.groups[group] = dict.fromkeys(committed, Ring(Window(self.rings.intervals)))
        read = {place for place in self.rings._newest if place.topic in described.topics}
        self.rings.see_uncommitted(group, read - committed, described)
        intervals, waiting = self.rings.intervals, self.rings.uncommitted.get(group, {})
        shown = {place: one for place, one in waiting.items() if 2 * one.polls >= intervals}
        if any(one.got_records and one.owned >= intervals for one in shown.values()):
            event = event._replace(status_text=Status.ERR.name)
        listed = {(one.topic, one.partition): one for one in event.partitions}
        for place in shown.keys() - listed.keys():
            owner, client_id = self.owners.get(group, {}).get(place, ("", ""))
            listed[place] = PartitionLag(
                topic=place.topic,
                partition=place.partition,
                owner=owner,
                client_id=client_id,
                status_text="",
                complete=0.0,
            )
        told = [self._proven(group, one, shown) for one in listed.values()]
        if any(one.status_text == BEYOND_END for one in told):
            event = event._replace(status_text=Status.ERR.name)
        lags = [one.current_lag for one in told if one.current_lag is not None]
        return event._replace(
            partitions=tuple(told),
            partition_count=len(told),
            total_lag=sum(lags) if lags else None,
            complete=complete_share(sum(one.complete == 1 for one in told), max(1, len(told))),
            max_lag=max(told, key=lambda one: one.current_lag or 0, default=None),
        )

    def _proven(self, group: str, one: PartitionLag, shown: Container[TopicPartition]) -> PartitionLag:
        place = TopicPartition(one.topic, one.partition)
        if one.end is None:
            return one._replace(status_text=NEVER_COMMITTED if place in shown else one.status_text, current_lag=None)
        seen_ms = self.seen[group, *place].at_ms
        low = [end for end in self.polls[place][-2:] if end.at_ms > seen_ms and end.offset < one.end.offset]
        if self.polls[place][-1] not in low:
            return one
        status = BEYOND_END if len(low) == BEYOND_END_POLLS else one.status_text
        return one._replace(status_text=status, current_lag=None, complete=0.0)

    def _own(self, group: str) -> None:
        """Set the owners of the partitions that the group's list has."""
        owners = self.owners.get(group, {})
        for topic, partitions in self.storage._groups[group].topics.items():
            for number, tracked in enumerate(partitions):
                if tracked is not None or (topic, number) in owners:
                    self.storage.put_owner(group, topic, number, *owners.get((topic, number), ("", "")))

    def _delete_topic(self, topic: str) -> None:
        del self.storage._broker[topic]
        for group in self.storage._groups.values():
            group.topics.pop(topic, None)


def _named(event: LagEvent, incident: Any) -> LagEvent:
    return event if incident is None else event._replace(incident_id=incident.id)


def comparable(event: LagEvent) -> Any:
    """All that a notification says, but for the id of its incident. Burrow lists partitions in any order.

    In Burrow, a partition without a commit is complete to a tenth if it ever had an owner, and not at all otherwise.
    """
    partitions = [
        each._replace(
            log_end=None,
            start=_seen(each.start),
            end=_seen(each.end),
            complete=None if each.start is None else each.complete,
        )
        for each in sorted(event.partitions, key=lambda each: (each.topic, each.partition))
    ]
    largest = event.max_lag and event.max_lag.current_lag
    return event._replace(
        partitions=tuple(partitions),
        max_lag=None,
        incident_start=None,
        incident_id=event.incident_id and "",
    ), largest or 0


def _seen(sample: Any) -> Any:
    return sample and sample._replace(observed_at_ms=None)
