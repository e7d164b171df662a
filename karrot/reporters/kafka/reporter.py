"""Writes each event to a topic, with a retry until every in-sync replica has it. Saves a report on each send."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec
import structlog

from karrot import telemetry
from karrot.event import GroupKey
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import (
    REPORT_NOTE,
    Context,
    Fact,
    RefusedDatum,
    Report,
    ReportFailed,
    Sent,
    Unreported,
    read_report,
)
from karrot.settings.options import Kafka
from karrot.text import instant


class Message(NamedTuple):
    """One event. The key is the event's group. The value is the event's `karrot.event_json_line` without line feed."""

    key: bytes
    value: bytes


class Written(NamedTuple):
    """The partition and offset of a message that every in-sync replica has."""

    partition: int
    offset: int


class Failed(NamedTuple):
    """Kafka refused the message, or the outcome is unknown. ``is_final``: a retry cannot succeed."""

    reason: str
    text: str
    is_final: bool = False


Outcome = Written | Failed


class NoTopic(ReportFailed):
    """No client can be created with the present settings or credentials."""


class TopicWriter(Protocol):
    """Defines what the reporter needs to write to a topic."""

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Write the messages in order. Wait some seconds for the outcome of each message."""

    def close(self) -> None:
        """Release all resources, and drop unsent messages."""


def message_of(stored: StoredEvent) -> Message:
    """Make the message of an event. The key is a JSON array, so that two groups never have the same key."""
    key = msgspec.json.encode(GroupKey(stored.event.cluster, stored.event.consumer))
    return Message(key, encode(stored).removesuffix(b"\n"))


_SHOWN = 20
_MOST_EVENTS, _MOST_BYTES = 500, 8 << 20
"""The largest batch of a report, in events and in bytes."""

_log = structlog.get_logger(__name__)


class KafkaReporter:
    """The push reporter of Kafka, which after a failure creates a new client and reads the properties file again.

    So a fatal error or a changed password needs no restart. A batch that failed partly is written again completely, so
    the last record of a group is always the group's newest event.
    """

    every_s = 0.0

    def __init__(self, options: Kafka, open_topic: Callable[[], TopicWriter], context: Context) -> None:
        self._options, self._open, self._context = options, open_topic, context
        self._topic: TopicWriter | None = None

    def report(self, events: Unreported) -> None:
        """Write a batch, and wait until the brokers acknowledge it. An event that cannot be written is counted."""
        batch, refused = self._batch(events)
        self._topic = self._topic or self._open()
        outcomes = self._topic.send([message for _, message in batch])
        offsets: dict[int, list[int]] = {}
        for (stored, message), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Written):
                offsets.setdefault(outcome.partition, []).append(outcome.offset)
            elif outcome.is_final:
                size = len(message.value)
                words = {"event_id": stored.event_id, "bytes": size, "reason": outcome.text}
                _log.error("Kafka refuses an event for good", code="kafka_refused_event", **words)
                refused.append(self._refused(stored, "too_large", f"{size:,} bytes: {outcome.text}"))
            else:
                self.close()
                raise ReportFailed(outcome.reason, outcome.text)
        for each in refused:
            self._context.count(telemetry.REPORTER_DROPPED, 1, reporter=self._context.name, reason=each.reason)
        # The report has the number of messages and the last offset of each partition, and the newest refused events.
        topic, at = self._options.topic, instant(self._context.clock.wall_ms())
        before = read_report(self._context.recall(REPORT_NOTE))
        facts = (Fact("Topic", topic), Fact("Brokers", ", ".join(self._options.bootstrap)))
        sent = (
            Sent(f"{topic}-{partition} up to offset {max(found)}", len(found), "events", at)
            for partition, found in sorted(offsets.items())
        )
        kept = (*reversed(refused), *(before.refused if before else ()))[:_SHOWN]
        report = Report(at, len(offsets), facts, tuple(islice(sent, _SHOWN)), kept)
        self._context.remember(REPORT_NOTE, msgspec.json.encode(report))

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()
            self._topic = None

    def _batch(self, events: Unreported) -> tuple[list[tuple[StoredEvent, Message]], list[RefusedDatum]]:
        """Encode the next events. Return their messages, and the events that cannot be encoded."""
        batch, refused, size = list[tuple[StoredEvent, Message]](), list[RefusedDatum](), 0
        for stored in islice(events, _MOST_EVENTS):
            try:
                message = message_of(stored)
            except Exception as error:  # noqa: BLE001 - one unexpected event must not stop all later events
                _log.exception("an event cannot be encoded", code="event_not_encoded", event_id=stored.event_id)
                refused.append(self._refused(stored, "unexpected", f"{type(error).__name__}: {error}"))
                continue
            batch.append((stored, message))
            size += len(message.value)
            if size >= _MOST_BYTES:
                break
        return batch, refused

    def _refused(self, stored: StoredEvent, reason: str, text: str) -> RefusedDatum:
        what = f"{stored.event_id}: {stored.event.cluster} {stored.event.consumer}"
        return RefusedDatum(what, reason, text, instant(self._context.clock.wall_ms()))
