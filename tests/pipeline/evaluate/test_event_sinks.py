"""Verdicts become messages of a topic and rows of the tables, as the ``kafka`` reporter and ``ingest`` make them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from karrot.burrow.payload import parse_webhook, to_wire
from karrot.clock import SystemClock
from karrot.event import Source
from karrot.event_json_line import decode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.evaluate.burrow_judge import to_tables
from karrot.pipeline.evaluate.verdict_destinations import (
    Deliver,
    NotAccepted,
    RefusedVerdict,
    to_topic,
)
from karrot.pipeline.store.table_files import Tables
from karrot.reporters.kafka.reporter import Failed, Message, NoTopic, Outcome, Written
from support.burrow.recorded_bodies import recorded_body

_LOG_ID = "0123456789abcdef"
_AT_MS = 1_746_950_400_000
_EVENT = parse_webhook(recorded_body("karrot_v1.9.5_warn.json"), observed_at_ms=_AT_MS)._replace(source=Source.KAFKA)


def _sent(*groups: str, first: int = 1) -> list[StoredEvent]:
    events = [_EVENT._replace(consumer=group) for group in groups]
    return [
        StoredEvent(_LOG_ID, seq, _AT_MS, summarize(event, _AT_MS), to_wire(event), event)
        for seq, event in enumerate(events, first)
    ]


class _Topic:
    """Answers each send with the next outcomes, by group; by default, a message is written."""

    def __init__(self, *answers: dict[str, Outcome] | NoTopic) -> None:
        self._answers = [*answers]
        self._now: dict[str, Outcome] = {}
        self.written = list[tuple[bytes, str]]()

    def open(self) -> "_Topic":
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, NoTopic):
            raise answer
        self._now = answer
        return self

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        outcomes = list[Outcome]()
        for message in messages:
            consumer = decode(message.value).consumer
            outcomes.append(self._now.get(consumer, Written(0, len(self.written))))
            if isinstance(outcomes[-1], Written):
                self.written.append((message.key, consumer))
        return outcomes

    def close(self) -> None:
        self._now = {}

    def sink(self) -> Deliver:
        return to_topic(self.open)


def test_refused_messages_are_reported_and_the_first_failed_one_says_what_to_send_again() -> None:
    away, large = Failed("_transport", "broker away"), Failed("msg_size_too_large", "too large", is_final=True)
    topic, sent = _Topic({"two": large, "three": away}), _sent("one", "two", "three", "four")
    refused = list[RefusedVerdict]()
    with pytest.raises(NotAccepted, match=r"^Kafka does not take the verdicts: broker away$") as raised:
        refused += topic.sink()(sent)
    assert (refused, raised.value.seq) == ([RefusedVerdict.of(sent[1], "Kafka", "msg_size_too_large")], 3)
    assert [*topic.sink()(sent[2:])] == []
    cluster = _EVENT.cluster
    assert topic.written == [(f'["{cluster}","{group}"]'.encode(), group) for group in ("one", "four", "three", "four")]


def test_a_batch_fails_if_no_client_can_be_made() -> None:
    with pytest.raises(NotAccepted, match=r"^Kafka does not take the verdicts: no password$"):
        [*_Topic(NoTopic("credentials", "no password")).sink()(_sent("one"))]


def test_the_tables_have_each_verdict_once_also_if_it_is_sent_again(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables.at(spark, str(tmp_path))
    sink = to_tables(spark, tables, SystemClock())
    assert sink(_sent("one", "two")) == ()
    sink(_sent("one", "two"))  # the driver died before it had noted the delivery
    sink(_sent("one", first=3))
    rows = tables.read(spark, "events").orderBy("seq").collect()
    assert [(row.event_id, row.consumer, row.source, row.status, row.total_lag) for row in rows] == [
        (f"{_LOG_ID}-{seq}", group, "kafka", _EVENT.status_text, _EVENT.total_lag)
        for seq, group in enumerate(("one", "two", "one"), 1)
    ]
    assert tables.read(spark, "partitions").count() == 3 * len(_EVENT.partitions)
    assert tables.read(spark, "quarantine").count() == 0
