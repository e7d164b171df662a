"""An in-memory Kafka cluster for `karrot.watch`; a test or a simulation sets its content."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from karrot.event import FirstUnread, TopicPartition
from karrot.watch.cluster_interface import ClusterError, Description, Failure, GroupMember, Listing
from support.burrow.fake.simulated_kafka import ConsumerGroup, Deletion, Record, SimulatedCommit, SimulatedOwner

DEAD = Description("Dead")


def make_member(*assigned: TopicPartition, host: str = "/10.0.0.1", name: str = "consumer-1") -> GroupMember:
    return GroupMember(f"{name}-{host}", name, host, assigned)


@dataclass
class InMemoryKafka:
    """A cluster. ``failures`` has errors in place of single groups or partitions, ``down`` one for every call.

    ``counts`` has the number of partitions of each topic that the metadata shows. ``others`` are no consumer groups.
    ``gaps`` has the offsets without a record, and ``open_from`` the first offset of an open transaction. ``unreadable``
    has errors in place of records.
    """

    descriptions: dict[str, Description] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    failures: dict[str | TopicPartition, Failure] = field(default_factory=dict)
    undescribed: dict[str, Failure] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    gaps: dict[TopicPartition, set[int]] = field(default_factory=dict)
    open_from: dict[TopicPartition, int] = field(default_factory=dict)
    unreadable: dict[TopicPartition, Failure] = field(default_factory=dict)
    reads: list[dict[TopicPartition, int]] = field(default_factory=list)
    is_complete: bool = True
    down: ClusterError | None = None
    asked: list[str] = field(default_factory=list)
    is_closed: bool = False

    def put(
        self, group: str, offsets: Mapping[TopicPartition, int], *members: GroupMember, state: str | None = None
    ) -> None:
        """Add a group with these commits and members."""
        self.offsets[group] = dict(offsets)
        self.descriptions[group] = Description(state or ("Stable" if members else "Empty"), members, 1)

    def delete(self, group: str) -> None:
        """Delete the group."""
        del self.offsets[group], self.descriptions[group]

    def groups(self) -> Listing:
        if self.down:
            raise self.down
        listed = {group: each.state for group, each in self.descriptions.items() if group not in self.unlisted}
        return Listing(listed, self.is_complete, frozenset(self.others))

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        self.asked += groups
        return {group: self.undescribed.get(group) or self.descriptions.get(group, DEAD) for group in groups}

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        return {group: self.failures.get(group) or dict(self.offsets[group]) for group in groups}

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return {place: self.failures.get(place) or self.ends[place] for place in places}

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return {place: self.failures.get(place) or self.starts.get(place, 0) for place in places}

    def first_unread(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FirstUnread | Failure]:
        self.reads.append(dict(places))
        return {place: self.unreadable.get(place) or self._first(place, offset) for place, offset in places.items()}

    def _first(self, place: TopicPartition, offset: int) -> FirstUnread:
        stable = self.open_from.get(place, self.ends[place])
        found = next((each for each in range(offset, stable) if each not in self.gaps.get(place, ())), None)
        return FirstUnread(stable) if found is None else FirstUnread(found, 1_795_800_000_000 + found)

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: count for topic, count in self.counts.items() if topic in topics}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: each for topic, each in self.ids.items() if topic in topics}

    def close(self) -> None:
        self.is_closed = True


@dataclass
class SimulatedWorld:
    """Simulated consumer groups that write to a cluster up to a given second."""

    groups: Sequence[ConsumerGroup]
    kafka: InMemoryKafka = field(default_factory=InMemoryKafka)
    due: dict[str, float] = field(default_factory=dict)
    records: list[tuple[float, str, Record]] = field(default_factory=list)

    def run_until(self, at: float) -> list[tuple[float, str, Record]]:
        """Return the records that the groups wrote since the last call, in order; the cluster has them afterwards."""
        written: list[tuple[float, str, Record]] = []
        for group in self.groups:
            step_at = self.due.setdefault(group.name, 0.0)
            while step_at <= at:
                written += [(step_at, group.name, record) for record in group.step(step_at)]
                step_at = self.due[group.name] = group.next_step(step_at)
        written.sort(key=lambda each: each[0])
        for _, name, record in written:
            self._take(name, record)
        for group in self.groups:
            for topic in group.topics:
                self.kafka.ends |= {
                    TopicPartition(topic.name, number): int(end) for number, end in enumerate(topic.ends(at))
                }
        return written

    def _take(self, group: str, record: Record) -> None:
        match record:
            case SimulatedOwner(topic, partition, host, client_id):
                described = self.kafka.descriptions.setdefault(group, Description("Stable", (), 1))
                joined = (
                    *(described.members or ()),
                    make_member(TopicPartition(topic, partition), host=host, name=client_id),
                )
                self.kafka.descriptions[group] = replace(described, members=joined)
                self.kafka.offsets.setdefault(group, {})
            case SimulatedCommit(topic, partition, offset):
                self.kafka.offsets[group][TopicPartition(topic, partition)] = offset
            case Deletion():
                self.kafka.delete(group)
