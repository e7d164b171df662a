"""Writes each event to a topic until every in-sync replica has it, and saves a report on each send."""

from collections.abc import Callable, Sequence
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
    Retry,
    Sending,
    Sent,
    Trouble,
    read_report,
)
from karrot.settings.options import Kafka


class Message(NamedTuple):
    """One event. The key is its group. The value is its line (`karrot.event_json_line`) without the line feed."""

    key: bytes
    value: bytes


class Written(NamedTuple):
    """Every in-sync replica has the message. Kafka gave it this partition and offset."""

    partition: int
    offset: int


class Failed(NamedTuple):
    """Kafka refused the message, or the outcome is unknown. ``is_final`` says that Kafka will never accept it."""

    reason: str
    text: str
    is_final: bool = False


Outcome = Written | Failed


class NoTopic(Exception):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """The current settings or credentials do not allow a client to be created. The text is for people."""

    def __init__(self, text: str, reason: str = "properties") -> None:
        super().__init__(text)
        self.reason = reason


class TopicWriter(Protocol):
    """Writes messages to a topic."""

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Write the messages in order. Wait some seconds for the outcome of each message."""

    def close(self) -> None:
        """Release all resources, and drop messages that are still being sent."""


def message_of(stored: StoredEvent) -> Message:
    """The message of an event. The key is a JSON array, so that two different groups never have the same key."""
    key = msgspec.json.encode(GroupKey(stored.event.cluster, stored.event.consumer))
    return Message(key, encode(stored).removesuffix(b"\n"))


_IDLE_S = 1.0
_SHOWN = 20
_TOO_LARGE, _UNEXPECTED = "too_large", "unexpected"

_log = structlog.get_logger(__name__)


class _Owed(NamedTuple):
    """An event that is not written yet."""

    stored: StoredEvent
    message: Message


class KafkaReporter:
    """A paced and bounded reporter: see `karrot.reporters.base`.

    The reporter holds one page of events at a time. Later events wait in the log. After a failure, the reporter creates
    a new client and reads the file of properties again. So a fatal error or a changed password does not need a restart.
    """

    def __init__(self, options: Kafka, open_topic: Callable[[], TopicWriter], context: Context) -> None:
        self._options = options
        self._open = open_topic
        self._topic: TopicWriter | None = None
        self._clock = context.clock
        self._reporter, self._count = context.name, context.count
        self._recall, self._remember = context.recall, context.remember
        self._owed: list[_Owed] = []
        self._refused: list[RefusedDatum] = []
        """The refused events for the next report."""
        self._retry = Retry(context.clock.boot_ms)

    def full(self) -> bool:
        """Whether events must wait in the log, because the brokers have not accepted the current page yet."""
        return bool(self._owed)

    def take(self, events: Sequence[StoredEvent]) -> None:
        """Make a message of each event. Count an event that cannot be encoded, and show it in the next report."""
        for stored in events:
            try:
                self._owed.append(_Owed(stored, message_of(stored)))
            except Exception as error:  # noqa: BLE001 - one unexpected event must not stop all later events
                _log.exception("an event cannot be encoded", code="event_not_encoded", event_id=stored.event_id)
                self._refuse(stored, _UNEXPECTED, f"{type(error).__name__}: {error}")

    def due_in(self) -> float:
        return self._retry.due_in() if self._owed else _IDLE_S

    def send(self) -> Sending:
        """Write the events that are not written yet, and wait until the brokers acknowledge them."""
        if not self._owed:
            return Sending(0)
        try:
            self._topic = self._topic or self._open()
        except NoTopic as error:
            return self._failed(Trouble(error.reason, str(error)))
        outcomes = self._topic.send([each.message for each in self._owed])
        self._settle(outcomes)
        if trouble := _trouble(outcomes):
            return self._failed(trouble)
        self._retry.went_well()
        return Sending(1)

    def owed(self, log_id: str) -> int | None:
        return min((each.stored.seq for each in self._owed if each.stored.log_id == log_id), default=None)

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()
            self._topic = None

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what must be sent again: a failed event, and all later ones of its group, so that their order stays."""
        again: list[_Owed] = []
        behind: set[bytes] = set()
        for each, outcome in zip(self._owed, outcomes, strict=True):
            if isinstance(outcome, Failed) and outcome.is_final:
                self._give_up(each, outcome)
            elif isinstance(outcome, Failed) or each.message.key in behind:
                behind.add(each.message.key)
                again.append(each)
        self._owed = again
        written = [each for each in outcomes if isinstance(each, Written)]
        if written or self._refused:
            before = read_report(self._recall(REPORT_NOTE))
            self._remember(REPORT_NOTE, report_of(self._options, before, written, self._refused, self._clock.wall_ms()))
            self._refused = []

    def _give_up(self, owed: _Owed, failed: Failed) -> None:
        size = len(owed.message.value)
        _log.error(
            "Kafka refuses an event for good",
            code="kafka_refused_event",
            event_id=owed.stored.event_id,
            bytes=size,
            reason=failed.text,
        )
        self._refuse(owed.stored, _TOO_LARGE, f"{size:,} bytes: {failed.text}")

    def _refuse(self, stored: StoredEvent, reason: str, text: str) -> None:
        self._count(telemetry.REPORTER_DROPPED.name, 1, reporter=self._reporter, reason=reason)
        what = f"{stored.event_id}: {stored.event.cluster} {stored.event.consumer}"
        self._refused.append(RefusedDatum(what, reason, text, self._clock.wall_ms()))

    def _failed(self, trouble: Trouble) -> Sending:
        self.close()
        self._retry.failed()
        return Sending(1, trouble)


def _trouble(outcomes: Sequence[Outcome]) -> Trouble | None:
    """The first failure that a retry may fix."""
    failed = (each for each in outcomes if isinstance(each, Failed) and not each.is_final)
    return next((Trouble(each.reason, each.text) for each in failed), None)


def report_of(
    options: Kafka, before: Report | None, written: Sequence[Written], refused: Sequence[RefusedDatum], at_ms: int
) -> bytes:
    """The report on a send, as a note for the log. The report keeps the 20 newest refused events, newest first."""
    facts = (Fact("Topic", options.topic), Fact("Brokers", ", ".join(options.bootstrap)))
    earlier = before.refused if before else ()
    kept = (*reversed(refused), *earlier)[:_SHOWN]
    sent = _sent(options.topic, written, at_ms)
    return msgspec.json.encode(Report(at_ms, len(sent), facts, sent[:_SHOWN], kept))


def _sent(topic: str, written: Sequence[Written], at_ms: int) -> tuple[Sent, ...]:
    """For each partition: the number of messages written, and the last offset."""
    offsets: dict[int, list[int]] = {}
    for each in written:
        offsets.setdefault(each.partition, []).append(each.offset)
    return tuple(
        Sent(f"{topic}-{partition} up to offset {max(found)}", len(found), "events", at_ms)
        for partition, found in sorted(offsets.items())
    )
