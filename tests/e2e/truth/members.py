"""Members of consumer groups: each is a thread with a client, and commits in a rhythm of its own."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from e2e.truth.plan import Place

Client = dict[str, str | int | float | bool]


def consumer_properties(
    client: Mapping[str, str | int | float | bool], group: str, **config: str | int | bool
) -> Client:
    """Return the properties of a consumer that asks the broker seldom."""
    return {
        **client,
        "log_level": 0,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 3_000,
        "max.poll.interval.ms": 86_400_000,
        "fetch.wait.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 10_000,
        "queued.min.messages": 100,
        **{name.replace("_", "."): value for name, value in config.items()},
    }


class Member:
    """A member that reads and commits in a thread of its own.

    ``commit_every_s`` is None for a member that never commits. ``per_second`` limits what it reads. ``assigned`` are
    partitions for a consumer that does not join its group. ``pauses`` lets it pause all its partitions, or resume them.
    ``hang`` stops it without an end of its heartbeats,
    ``poison`` makes it fail for ever at the next record of a partition, and ``recommits`` lets it commit the offset of
    that record again at each try. With ``backs_off``, it pauses the partition for two seconds after each try.
    """

    def __init__(
        self,
        client: Mapping[str, str | int | float | bool],
        group: str,
        topics: list[str],
        *,
        commit_every_s: float | None = 2,
        per_second: float | None = None,
        assigned: list[Place] | None = None,
        recommits: bool = False,
        backs_off: bool = False,
        **config: str | int | bool,
    ) -> None:
        self._properties = consumer_properties(client, group, **config)
        self._consumer = Consumer(self._properties)
        self._topics = topics
        self._commit_every_s = commit_every_s
        self.per_second = per_second
        self._assigned = assigned
        self._recommits = recommits
        self._backs_off = backs_off
        self._resume_at: float | None = None
        self._done: dict[Place, int] = {}
        self._committed_at = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)
        self.hang = threading.Event()
        self.pauses = False
        self._is_paused = False
        self.poison: Place | None = None
        self.poisoned_at: int | None = None
        self.read = 0
        self.owned: set[Place] = set()

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Commit and leave, as at a clean stop."""
        self._end.set()
        self._thread.join(60)

    def _run(self) -> None:
        self._begin()
        second, read = time.monotonic(), 0
        while not self._end.is_set():
            if self.hang.is_set():
                self._end.wait(0.5)
                continue
            if self.pauses != self._is_paused:
                self._pause_or_resume()
            if self.poison and self._resume_at is not None and time.monotonic() >= self._resume_at:
                self._consumer.resume([TopicPartition(*self.poison)])
                self._resume_at = None
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self._handle(message)
                read += 1
            elif message is not None and (error := message.error()) is not None and error.fatal():
                self._consumer.close()  # as a pod that ends with the error and is started again
                self._consumer, self._done, self.owned = Consumer(self._properties), {}, set()
                self._begin()
            if self.per_second is not None and read >= self.per_second:
                self._end.wait(max(0.0, second + 1 - time.monotonic()))
            if time.monotonic() >= second + 1:
                second, read = time.monotonic(), 0
            if self._commit_every_s is not None and time.monotonic() >= self._committed_at + self._commit_every_s:
                self._commit()
        self._commit()
        self._consumer.close()

    def _begin(self) -> None:
        if self._assigned is not None:
            self._consumer.assign([TopicPartition(*each) for each in self._assigned])
        else:
            self._consumer.subscribe(self._topics, on_assign=self._got, on_revoke=self._gave)

    def _pause_or_resume(self) -> None:
        (self._consumer.resume if self._is_paused else self._consumer.pause)(self._consumer.assignment())
        self._is_paused = not self._is_paused

    def _handle(self, message: Message) -> None:
        place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if place == self.poison:
            if self.poisoned_at is None or self._recommits:
                self._done[place] = offset
            self.poisoned_at = offset
            self._consumer.seek(TopicPartition(*place, offset))
            if self._backs_off:
                self._consumer.pause([TopicPartition(*place)])
                self._resume_at = time.monotonic() + 2
            else:
                self._end.wait(0.3)
            return
        self.read += 1
        self._done[place] = offset + 1

    def _commit(self) -> None:
        """Commit what was read. If that fails, the next commit covers it."""
        self._committed_at = time.monotonic()
        if self._commit_every_s is None or not self._done:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in self._done.items()]
        with suppress(KafkaException):
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._done = {}

    def _got(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {(each.topic, each.partition) for each in partitions}

    def _gave(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        gone = {(each.topic, each.partition) for each in partitions}
        self.owned -= gone
        self._done = {place: offset for place, offset in self._done.items() if place not in gone}
