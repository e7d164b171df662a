"""The kafka reporter writes, repeats, drops and reports events correctly for any answers of the brokers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.event_json_line import decode
from karrot.eventlog.base import Cursor, StoredEvent
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import Fact, PushReporter, Report, ReportFailed, Sent, Unreported, read_report
from karrot.reporters.kafka import build, reporter
from karrot.reporters.kafka.reporter import (
    Failed,
    KafkaReporter,
    Message,
    NoTopic,
    Outcome,
    TopicWriter,
    Written,
    message_of,
)
from karrot.settings.options import Kafka
from karrot.text import instant
from support.eventlog.appended_events import append_event, append_many, stored_events
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context

OPTIONS = Kafka(("a:9092", "b:9092"))
AWAY = Failed("_transport", "nobody is there")
LARGE = Failed("msg_size_too_large", "too large", is_final=True)


@dataclass
class Brokers:
    """Brokers that give scripted answers and then accept everything, in one partition; ``kept`` has their messages."""

    answers: list[list[Failed | None]] = field(default_factory=list)
    kept: list[Message] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    def open(self) -> TopicWriter:
        self.opened += 1
        return self

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        answers = self.answers.pop(0) if self.answers else []
        return [
            self._keep(message) if answer is None else answer
            for message, answer in zip(messages, [*answers, *[None] * len(messages)], strict=False)
        ]

    def close(self) -> None:
        self.closed += 1

    def _keep(self, message: Message) -> Written:
        self.kept.append(message)
        return Written(0, len(self.kept) - 1)


@dataclass
class Rig:
    """A reporter with brokers and a log."""

    brokers: Brokers = field(default_factory=Brokers)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.log = MemoryEventLog(self.clock)
        self.reporter = self.another(self.brokers.open)

    done: int = 0
    """The sequence number of the last reported event."""

    def send(self) -> None:
        """Make one report, as delivery does."""
        events = Unreported(self.log, Cursor(self.log.log_id, self.done))
        self.reporter.report(events)
        self.done = events.cursor.seq

    def another(self, open_topic: Callable[[], TopicWriter]) -> KafkaReporter:
        return KafkaReporter(OPTIONS, open_topic, make_context("kafka", log=self.log, clock=self.clock))

    def events(self, *consumers: str) -> list[StoredEvent]:
        before = self.log.size().last_seq
        for consumer in consumers:
            append_event(self.log, consumer=consumer)
        return stored_events(self.log, before)

    @property
    def report(self) -> Report | None:
        return read_report(self.log.recall("kafka", "report"))

    def written(self) -> list[int]:
        return [decode(each.value).seq for each in self.brokers.kept]

    def dropped(self, reason: str) -> float:
        labels = {"reporter": "kafka", "reason": reason}
        return sum(each.value for each in self.log.counters() if dict(each.labels) == labels)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_event_is_written_as_its_line_with_cluster_and_group_as_the_key(rig: Rig) -> None:
    (event,) = rig.events('grüppe"/,')
    rig.send()
    (message,) = rig.brokers.kept
    assert message.key.decode() == '["prod-eu","grüppe\\"/,"]'
    assert not message.value.endswith(b"\n")
    assert decode(message.value).event_id == event.event_id
    assert rig.report == Report(
        instant(rig.clock.wall),
        1,
        (Fact("Topic", "karrot.events"), Fact("Brokers", "a:9092, b:9092")),
        (Sent("karrot.events-0 up to offset 0", 1, "events", instant(rig.clock.wall)),),
    )


def test_a_batch_that_failed_partly_is_written_again_as_a_whole_with_a_new_client(rig: Rig) -> None:
    rig.brokers.answers = [[None, AWAY], [AWAY, AWAY]]
    rig.events("a", "b")
    for _ in range(2):
        with pytest.raises(ReportFailed) as caught:
            rig.send()
        assert (caught.value.reason, caught.value.text) == ("_transport", "nobody is there")
        assert (rig.report, rig.done) == (None, 0)
    rig.send()
    assert (rig.written(), rig.done) == ([1, 1, 2], 2)
    assert (rig.brokers.opened, rig.brokers.closed) == (3, 2)


def test_a_report_writes_a_batch_of_limited_length_and_size(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    append_many(rig.log, 501)
    rig.send()
    assert (len(rig.brokers.kept), rig.done) == (500, 500)
    append_many(rig.log, 4)
    sizes = [len(message_of(each).value) for each in stored_events(rig.log, 500)]
    monkeypatch.setattr(reporter, "_MOST_BYTES", sum(sizes[:2]) + 1)
    rig.send()
    assert rig.done == 503
    monkeypatch.setattr(reporter, "_MOST_BYTES", sizes[3])
    rig.send()
    assert rig.done == 504


def test_a_message_that_can_never_be_written_is_counted_and_stays_visible(rig: Rig) -> None:
    rig.brokers.answers = [[None, LARGE, None]]
    events = rig.events("a", "large", "b")
    rig.send()
    assert rig.written() == [1, 3]
    rig.clock.advance(1000)
    rig.events("c")
    rig.send()
    assert rig.report is not None
    (refused,) = rig.report.refused
    assert (refused.what, refused.reason) == (f"{events[1].event_id}: prod-eu large", "too_large")
    assert refused.text.endswith(" bytes: too large")
    assert rig.dropped("too_large") == 1


def test_a_refused_message_of_a_batch_that_is_repeated_is_counted_once(rig: Rig) -> None:
    rig.brokers.answers = [[LARGE, AWAY], [LARGE]]
    rig.events("large", "a")
    with pytest.raises(ReportFailed):
        rig.send()
    assert rig.dropped("too_large") == 0
    rig.send()
    assert rig.dropped("too_large") == 1


def test_an_unexpected_event_is_counted_and_visible_and_does_not_block_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = rig.events("a", "b", "c")
    odd = replace(second, body=b"\xff")
    with monkeypatch.context() as patch:
        patch.setattr(rig.log, "read", lambda after: [first, odd, third][after:])
        rig.send()
    assert rig.written() == [1, 3]
    assert rig.report is not None
    (refused,) = rig.report.refused
    assert (refused.what, refused.reason) == (f"{odd.event_id}: prod-eu b", "unexpected")
    assert refused.text.startswith("UnicodeDecodeError: ")
    assert rig.dropped("unexpected") == 1
    rig.events("d")
    rig.send()
    assert rig.report.refused == (refused,)


def test_invalid_properties_are_reported_until_they_are_valid(rig: Rig) -> None:
    def refuse() -> TopicWriter:
        raise NoTopic("properties", "security.protocol is none")

    rig.reporter = rig.another(refuse)
    rig.events("a")
    for _ in range(2):
        with pytest.raises(ReportFailed) as caught:
            rig.send()
        assert (caught.value.reason, caught.value.text) == ("properties", "security.protocol is none")


GROUPS = st.lists(st.sampled_from("abc"), min_size=1, max_size=12)
ANSWERS = st.lists(st.lists(st.sampled_from([None, None, AWAY, LARGE]), max_size=12), max_size=4)


@given(GROUPS, ANSWERS)
def test_each_event_is_written_or_refused_and_the_last_record_of_a_group_is_its_newest(
    groups: list[str], answers: list[list[Failed | None]]
) -> None:
    rig = Rig(Brokers([*answers]))
    events = rig.events(*groups)
    while rig.done < len(events):
        with suppress(ReportFailed):
            rig.send()
    refused = {each.what.split(":")[0] for each in rig.report.refused} if rig.report else set()
    written = rig.written()
    assert {each.event_id for each in events if each.seq in written} | refused == {each.event_id for each in events}
    for group in set(groups):
        of_group = [each.seq for each in events if each.event.consumer == group and each.event_id not in refused]
        if of_group:
            assert [seq for seq in written if seq in of_group][-1] == of_group[-1]


def test_the_reporter_needs_a_readable_file(tmp_path: Path) -> None:
    assert isinstance(build(make_context("kafka", {"topic": "", "properties": ""})), PushReporter)
    file = tmp_path / "jks.properties"
    file.write_text("ssl.truststore.location=/etc/kafka.jks")
    for properties, said in (
        (tmp_path / "none", "none cannot be read: No such file"),
        (file, "jks.properties: ssl.truststore.location must be a PEM file"),
    ):
        with pytest.raises(ValueError, match=said):
            build(replace(make_context("kafka"), options=replace(OPTIONS, properties=properties)))
