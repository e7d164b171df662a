"""Writes to a topic at a steady rate, with one group whose only member reads it at a given rate."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer

from e2e.stack.kafka import Kafka

_TICK_S = 0.1
_PARTITION = 0


class Traffic:
    """Traffic that runs inside ``with``, in its own thread.

    On each tick, a tenth of a second, it writes ``writes`` messages; then the member reads and commits at most
    ``reads`` messages. If ``reads`` is ``None``, the member leaves the group, and returns with the next number. A late
    tick is not made up for. ``acknowledged`` counts the messages that every in-sync broker has.
    """

    def __init__(self, kafka: Kafka, topic: str, group: str, *, writes: int, reads: int | None) -> None:
        self._producer = Producer(kafka.client | {"acks": "all"})
        self._told = kafka.client | {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
        self._topic = topic
        self._member: Consumer | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group)
        self.writes = writes
        self.reads = reads
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def is_member(self) -> bool:
        """Return whether the member is in the group and shall stay in it."""
        return self._member is not None

    def end(self) -> None:
        """Stop writing and reading; afterwards all written messages are acknowledged and the member has left."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_TICK_S):
            for _ in range(self.writes):
                self._producer.produce(self._topic, b"message", partition=_PARTITION, on_delivery=self._delivered)
            self._producer.poll(0)
            self._read(self.reads)
        self._read(None)
        self._producer.flush(60)

    def _delivered(self, error: object, _message: object) -> None:
        self.acknowledged += error is None

    def _read(self, most: int | None) -> None:
        if most is None:
            if self._member is not None:
                self._member.close()
                self._member = None
            return
        if self._member is None:
            self._member = Consumer(self._told)
            self._member.subscribe([self._topic])
        messages = [each for each in self._member.consume(most, _TICK_S) if each.error() is None]
        if messages:
            with suppress(KafkaException):  # its coordinator is away: the next commit covers all messages read so far
                self._member.commit(asynchronous=False)
