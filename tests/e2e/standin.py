"""A replacement for Burrow over a real Kafka, if there is no real Burrow: the reference model with the fake's REST API.

Once per tick it reads log ends and committed offsets from Kafka, and stores each commit with the time of that read.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, cast

from confluent_kafka import KafkaException

from e2e.stack.kafka import Kafka
from karrot.burrow.rules import evaluate_group
from karrot.clock import SystemClock
from karrot.event import LagEvent, TopicPartition
from karrot.watch.cluster_interface import ClusterError, Failure
from karrot.watch.kafka_admin import KafkaCluster
from support.burrow.burrow_storage import Storage
from support.burrow.fake.rest_api import BurrowServer, RestApi
from support.burrow.partition_model import delete_topic

if TYPE_CHECKING:
    from support.burrow.fake.fake_burrow import FakeBurrow

_TICK_S = 0.5


@contextmanager
def standing_in(kafka: Kafka, cluster: str) -> Iterator[str]:
    """Start it, and yield the address of its REST API."""
    burrow, clock = _Burrow(kafka, cluster), SystemClock()
    api = RestApi(cast("FakeBurrow", burrow), clock, Random(1))
    with burrow.following(), BurrowServer(api) as server:
        yield server.url


class _Burrow:
    """The part of a fake Burrow that `RestApi` uses."""

    def __init__(self, kafka: Kafka, cluster: str) -> None:
        self._kafka = KafkaCluster(kafka.client)
        self._admin = kafka.admin()
        self._cluster = cluster
        self._storage = Storage()
        self._order = 0
        self._committed: dict[tuple[str, str, int], int] = {}
        self._one_at_a_time = threading.RLock()

    @contextmanager
    def following(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._follow, args=(stop,), name="burrow-stand-in")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @contextmanager
    def at(self, _now_ms: int) -> Iterator[Mapping[str, Storage]]:
        with self._one_at_a_time:
            yield {self._cluster: self._storage}

    def verdict(self, cluster: str, group: str, now_ms: int) -> LagEvent | None:
        with self.at(now_ms) as storages:
            partitions = storages[cluster].fetch(group, now_ms // 1000) if cluster in storages else None
        return None if partitions is None else evaluate_group(cluster, group, partitions, now_ms, show_all=True)

    def _follow(self, stop: threading.Event) -> None:
        while not stop.wait(_TICK_S):
            with suppress(ClusterError, KafkaException):  # Kafka did not answer: keep the stored values, as Burrow does
                self._tick()

    def _tick(self) -> None:
        groups = self._kafka.groups().groups
        committed = self._kafka.committed(groups)
        topics = {name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=10).topics.items()}
        ends = self._kafka.log_ends(
            {TopicPartition(name, number) for name, count in topics.items() for number in range(count)}
        )
        with self._one_at_a_time:
            for group in set(self._storage.groups()) - groups.keys():
                self._storage.delete_group(group)
            for topic in set(self._storage.topics()) - topics.keys():
                delete_topic(self._storage, topic)
            for (topic, partition), end in ends.items():
                if not isinstance(end, Failure):
                    self._storage.put_log_end(topic, partition, end, partition_count=topics[topic])
            for group, offsets in committed.items():
                for (topic, partition), offset in ({} if isinstance(offsets, Failure) else offsets).items():
                    self._commit(group, topic, partition, offset)

    def _commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        if self._committed.get((group, topic, partition)) == offset:
            return
        self._committed[group, topic, partition] = offset
        self._order += 1
        now = time.time()
        self._storage.put_commit(
            group, topic, partition, offset, order=self._order, timestamp_ms=int(now * 1000), now=int(now)
        )
