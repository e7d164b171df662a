"""The broker as the scenarios use it, and the record of what they did."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions, NewTopic

from e2e.truth.members import Client, consumer_properties
from e2e.truth.plan import Case, Place, Proof, Timetable
from e2e.truth.servers import Broker

if TYPE_CHECKING:
    from e2e.truth.explained import Asked

_TICK_S = 0.25


class Failed(NamedTuple):
    """A scenario that broke: then the run proves nothing."""

    scenario: str
    error: BaseException


class Feed:
    """Records that arrive on the partitions of a topic in turn, ``per_second`` in all."""

    def __init__(self, topic: str, partitions: Iterable[int], per_second: float) -> None:
        self.topic = topic
        self._partitions = tuple(partitions)
        self.per_second = per_second
        self._owed = 0.0
        self._next = 0

    def due(self, seconds: float) -> Iterator[int]:
        """Yield a partition for each record that is due."""
        self._owed += seconds * self.per_second
        while self._owed >= 1:
            self._owed -= 1
            self._next += 1
            yield self._partitions[self._next % len(self._partitions)]


class World:
    """What a scenario needs: topics, records, offsets, a clock, and the list of the groups."""

    def __init__(self, broker: Broker, timetable: Timetable, seed: int) -> None:
        self.broker = broker
        self.client: Client = dict(broker.kafka.client)
        self.admin = broker.kafka.admin()
        self.timetable = timetable
        self.random = Random(seed)
        self.cases: dict[str, Case] = {}
        self.asked: list[Asked] = []
        self.failures: list[Failed] = []
        self.stopping = threading.Event()
        self._started_at: float | None = None
        self._began = threading.Event()
        self._producer = Producer(self.client | {"linger.ms": 50, "topic.metadata.refresh.interval.ms": 2000})
        self._feeds: list[Feed] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.go("traffic", self._traffic)

    # Time

    def begin(self) -> None:
        """Start the clock: Karrot is ready."""
        self._started_at = time.monotonic()
        self._began.set()

    def now(self) -> float:
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    def until(self, at: float) -> bool:
        """Wait until a time; return whether the run goes on."""
        self._began.wait()
        return not self.stopping.wait(max(0.0, at - self.now()))

    def every(self, seconds: float, first: float, last: float, *, always: bool = False) -> Iterator[None]:
        """Yield at a steady pace, from one time to another; unless ``always``, not while the broker is down."""
        at = first
        while at <= last and self.until(at):
            if always or self.timetable.is_calm(at):
                yield
            at = max(at + seconds, self.now())

    @staticmethod
    def a_day_ago_ms() -> int:
        return int(time.time() * 1000) - 86_400_000

    def go(self, name: str, run: Callable[[], None]) -> None:
        """Run a function in a thread of its own; an error in it fails the run."""

        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - each error of a scenario makes the run worthless
                if not self.stopping.is_set():
                    self.failures.append(Failed(name, error))

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._began.set()
        for thread in self._threads:
            thread.join(20)

    # Groups

    def harmless(self, kind: str, group: str) -> str:
        """Enter a group that must cause no incident and no alert."""
        with self._lock:
            self.cases[group] = Case(kind, group)
        return group

    def faulty(self, kind: str, group: str, proof: Proof, *alerts: str, commit_gap_s: float, note: str) -> Case:
        """Enter a group whose fault Karrot must find, and in which one of these alerts must fire."""
        with self._lock:
            case = self.cases[group] = Case(kind, group, proof, alerts, commit_gap_s, note=note)
        return case

    # Kafka

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        told = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=told)])[name].result(60)
        return name

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(60)

    def add_partitions(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(60)

    def purge(self, name: str, before: int) -> None:
        """Delete the records of partition 0 below an offset, as retention does."""
        for each in self.admin.delete_records([TopicPartition(name, 0, before)]).values():
            each.result(60)

    def send(self, topic: str, count: int, partition: int = 0, **message: Any) -> None:
        """Write records, and wait until the broker has them."""
        for _ in range(count):
            self._producer.produce(topic, partition=partition, **({"value": b"x" * 20} | message))
        assert self._producer.flush(60) == 0

    def feed(self, topic: str, partitions: int | Iterable[int], per_second: float) -> Feed:
        """Let records arrive from now on."""
        feed = Feed(topic, range(partitions) if isinstance(partitions, int) else partitions, per_second)
        with self._lock:
            self._feeds.append(feed)
        return feed

    def end(self, topic: str, partition: int = 0, *, within_s: float = 30) -> int:
        """Return the log end offset, transaction markers included."""
        reader = Consumer(self.client | {"group.id": "nobody", "isolation.level": "read_uncommitted"})
        try:
            return int(reader.get_watermark_offsets(TopicPartition(topic, partition), within_s)[1])
        finally:
            reader.close()

    def commit(self, group: str, offsets: dict[Place, int], *, within_s: float = 60) -> None:
        """Set the offsets of a group without members. Raises KafkaException."""
        asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        told = [ConsumerGroupTopicPartitions(group, asked)]
        done = self.admin.alter_consumer_group_offsets(told, request_timeout=within_s)
        for each in done[group].result(within_s + 5).topic_partitions:
            if each.error:
                raise KafkaException(each.error)

    def renew(self) -> None:
        """Take another client for administration: the old one can wait in vain after the death of a broker."""
        self.admin = self.broker.kafka.admin()

    def committed(self, group: str) -> dict[Place, int]:
        """Return the committed offsets that Kafka has."""
        found = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}

    def has_members(self, group: str) -> bool:
        return bool(self.admin.describe_consumer_groups([group])[group].result(60).members)

    def transactional(self, name: str) -> Producer:
        """Return a producer for transactions, which may stay open for two hours."""
        told = {"transactional.id": name, "transaction.timeout.ms": 7_200_000, "message.timeout.ms": 300_000}
        producer = Producer(self.client | told)
        producer.init_transactions(60)
        return producer

    def consumer(self, group: str, **config: str | int | bool) -> Consumer:
        return Consumer(consumer_properties(self.client, group, **config))

    def _traffic(self) -> None:
        before = time.monotonic()
        while not self.stopping.wait(_TICK_S):
            now = time.monotonic()
            with self._lock:
                feeds = tuple(self._feeds)
            for feed in feeds:
                for partition in feed.due(now - before):
                    with suppress(KafkaException):  # the producer does not know a new partition yet
                        self._producer.produce(feed.topic, b"x" * 20, partition=partition)
            self._producer.poll(0)
            before = now
