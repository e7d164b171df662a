"""The job in Spark sends the notifications of the reference model, batch by batch, through crashes."""

import json
import shutil
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from karrot.burrow.notification_rules import NameFilter, NotifierSettings
from karrot.burrow.payload import parse_stored
from karrot.event import LagEvent, LogEnd, Source, TopicPartition
from karrot.eventlog.base import StoredEvent
from karrot.pipeline.evaluate.bucket_state import EvaluateRules
from karrot.pipeline.evaluate.job import Evaluate, EvaluatedBatch
from karrot.pipeline.evaluate.recent_log_ends import LogEndLook
from karrot.pipeline.evaluate.verdict_destinations import Deliver, RefusedVerdict, to_stream
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.record_sources import RecordsFromParquet
from karrot.pipeline.stream.streaming_queries import CheckpointReader, UnusableState
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.kafka.offset_records import Member, assignment, commit_key, commit_value, group_key, group_value
from support.manual_clock import ManualClock
from support.pipeline.evaluate_model import Batch, EvaluateModel, Rebalance, batches, comparable
from support.pipeline.kafka_source_rows import KAFKA_SOURCE_SCHEMA, records_frame
from support.pipeline.log_end_looks import look_of

_ASKED = EvaluateRules(
    notifier=NotifierSettings(threshold=1, interval=30, send_close=True),
    groups=NameFilter(("^g",), ("2$",)),
)


_ALL_GROUPS = EvaluateRules(notifier=_ASKED.notifier)


class _Ends:
    """The log ends and the time of one batch."""

    batch: Batch
    ahead_ms: int = 0

    def now_ms(self, _number: int) -> int:
        return self.batch.now * 1000 + self.ahead_ms

    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """The log ends at the beginning of the batch, once for each topic."""
        at_ms = (self.batch.now - 60) * 1000 + self.ahead_ms
        assert between_ms[1] == self.batch.now * 1000 + self.ahead_ms
        found = [(TopicPartition(*place), LogEnd(at_ms, end)) for place, end in self.batch.ends.items()]
        return look_of([each for each in found if each[0].topic in topics], {topic for topic, _ in self.batch.ends})


def _records(spark: SparkSession, batch: Batch) -> DataFrame:
    rows: list[tuple[bytes, bytes | None, int, int]] = [
        (commit_key(*each[:3]), commit_value(3, each.offset, commit_ts=each.timestamp_ms), each.order, each.at_ms)
        for each in batch.commits
    ]
    rows += [(group_key(group), None, order, batch.now * 1000 - 1) for group, order in batch.deleted.items()]
    rows += [
        (group_key(each.group), group_value(4, members=_members(each)), each.order, each.at_ms)
        for each in batch.rebalances
    ]
    table = pa.Table.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "topic": "__consumer_offsets",
                "partition": 3,
                "offset": order,
                "timestamp": datetime.fromtimestamp(at_ms / 1000, UTC),
            }
            for key, value, order, at_ms in rows
        ],
        KAFKA_SOURCE_SCHEMA,
    )
    return spark.createDataFrame(table)


def _members(rebalance: Rebalance) -> list[Member]:
    """The members of a group. Their client ids and hosts need not be different."""
    found = list[Member]()
    for owner, client_id in sorted({*rebalance.owners.values()}):
        numbers = dict[str, list[int]]()
        for (topic, number), of_partition in rebalance.owners.items():
            if of_partition == (owner, client_id):
                numbers.setdefault(topic, []).append(number)
        found.append(Member(owner, client_id, owner, assigned=assignment(numbers)))
    return found


def assert_counted(seen: EvaluatedBatch, batch: Batch, told: list[LagEvent]) -> None:
    """All groups are told, and the receiver refused one of them."""
    committed = [each for one in told for each in one.partitions if each.end]
    assert (seen.now_ms, seen.groups, seen.partitions) == (batch.now * 1000, len(told), len(committed))
    assert (seen.delivered, len(seen.refused)) == (len(told) - 1, 1)


class _Crash(Exception):  # noqa: N818 (it is one)
    pass


def _fail(_several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
    raise _Crash


class _Rig:
    """Jobs on the same checkpoint, one after the other. Each knows only the checkpoint."""

    def __init__(self, spark: SparkSession, place: Path, asked: EvaluateRules, buckets: int = 1) -> None:
        self.spark, self.place, self.asked, self.buckets = spark, place, asked, buckets
        self.ends, self.clock = _Ends(), ManualClock(wall=1 << 50)
        self.sent, self.seen = list[StoredEvent](), list[EvaluatedBatch]()

    def deliver(self, several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
        self.sent.extend(several)
        return []

    def job(self, deliver: Deliver | None = None, source: type[RecordsFromParquet] = RecordsFromParquet) -> Evaluate:
        tables, checkpoint = Tables.at(self.spark, str(self.place / "tables")), str(self.place / "checkpoint")
        read, told, ends = source(str(self.place)), deliver or self.deliver, self.ends
        return Evaluate(
            self.spark,
            read,
            ends,
            "c",
            tables,
            checkpoint,
            self.asked,
            [told],
            ends.now_ms,
            buckets=self.buckets,
            seen=self.seen.append,
            clock=self.clock,
        )


@pytest.mark.parametrize("many", [3, pytest.param(12, marks=pytest.mark.deep)])
def test_the_job_sends_what_the_model_sends_also_after_crashes(spark: SparkSession, tmp_path: Path, many: int) -> None:
    model, rig = EvaluateModel(_ASKED), _Rig(spark, tmp_path, _ASKED, buckets=3)
    sent = rig.sent

    def deliver(several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
        sent.extend(several)
        return [RefusedVerdict.of(each, "Karrot", "too_large") for each in sent[:1]]

    ids: dict[str, str | None] = {}
    seqs: list[int] = []
    for number, batch in enumerate(batches(Random(3), many)):
        rig.ends.batch = batch
        records = _records(spark, batch)
        if number % 3 == 1:  # the driver dies while it delivers
            with pytest.raises(_Crash):
                rig.job(_fail).take(records, number)
        sent.clear()
        rig.job(deliver).take(records, number)
        told = [parse_stored(each.body, observed_at_ms=batch.now * 1000, source=Source.KAFKA) for each in sent]
        expected = [each for each in model.take(batch) if each.consumer != "g2"]
        assert sorted(map(comparable, told)) == sorted(map(comparable, expected))
        assert [each.name for each in (tmp_path / "checkpoint/state").iterdir()] == [f"batch={number}"]
        for group in batch.deleted:
            ids.pop(group, None)
        for each in told:
            if each.incident_id:
                assert ids.setdefault(each.consumer, each.incident_id) == each.incident_id
                if each.status_text == "OK":
                    ids.pop(each.consumer)
        assert_counted(rig.seen[-1], batch, told)
        seqs += (each.seq for each in sent)
        kept = (tmp_path / f"checkpoint/refused/batch={number:012d}.jsonl").read_text().splitlines()
        assert [json.loads(line)["key"] for line in kept] == [sent[0].event_id]
    assert ids
    assert seqs == [*range(1, len(seqs) + 1)]


def test_a_cluster_without_groups_has_no_verdicts_and_unreadable_records_go_to_quarantine_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[EvaluatedBatch] = []
    ends, tables = _Ends(), Tables.at(spark, str(tmp_path / "tables"))
    first = next(batches(Random(3), 1))
    empty = first._replace(now=first.now - 60, commits=[], deleted={}, rebalances=[])
    bad = [
        (commit_key("g0", "t0", 0)[:-2], b"\0"),
        (group_key("g0"), b"\0\4no metadata"),
        (None, b"a value without a key"),
    ]
    records = _records(spark, first).unionByName(records_frame(spark, bad, 1_000))
    # The other checkpoint reads the same records again.
    for name, several in (
        ("one", [(empty, _records(spark, empty)), (first, records)]),
        ("another", [(first, records)]),
    ):
        for number, (batch, of_batch) in enumerate(several):
            ends.batch, place, source = batch, str(tmp_path / name), RecordsFromParquet(str(tmp_path))
            deliver = [to_stream(StringIO())]
            job = Evaluate(spark, source, ends, "c", tables, place, _ALL_GROUPS, deliver, ends.now_ms, 1, seen.append)
            job.take(of_batch, number)
    kept = tables.read(spark, "quarantine").orderBy("position").collect()
    assert [(row.source, row.position, row.reason) for row in kept] == [
        ("c/__consumer_offsets-3", 1000, "truncated_partition"),
        ("c/__consumer_offsets-3", 1001, "truncated_protocol_type"),
        ("c/__consumer_offsets-3", 1002, "no_key_type"),
    ]
    groups = len({each.group for each in first.commits})
    assert [(each.groups, each.delivered, each.unreadable) for each in seen] == [
        (0, 0, 0),
        (groups, groups, 3),
        (groups, groups, 3),
    ]


class _Backlog(RecordsFromParquet):
    """A source with more records than a batch takes."""

    def is_full(self, read: CheckpointReader, batch: int) -> bool:
        return read(f"offsets/{batch}") is None


def test_nothing_is_judged_while_more_records_wait(spark: SparkSession, tmp_path: Path) -> None:
    # The four commits that a ring keeps here are from both batches.
    asked, several = EvaluateRules(RuleSet("r", 4), _ASKED.notifier), [*batches(Random(5), 2)]
    model, rig = EvaluateModel(asked), _Rig(spark, tmp_path, asked)
    sent = rig.sent
    for number, batch in enumerate(several):
        rig.ends.batch, is_last = batch, batch is several[-1]
        rig.job(source=RecordsFromParquet if is_last else _Backlog).take(_records(spark, batch), number)
        expected = model.take(batch)
        assert bool(sent) is is_last
    assert [each.is_judged for each in rig.seen] == [False, True]
    told = {each.event.consumer: (each.event.status, each.event.total_lag) for each in sent}
    assert told == {each.consumer: (each.status, each.total_lag) for each in expected}


def test_one_batch_by_a_clock_that_was_ahead_silences_no_later_batch(spark: SparkSession, tmp_path: Path) -> None:
    model, rig = EvaluateModel(_ALL_GROUPS), _Rig(spark, tmp_path, _ALL_GROUPS)
    for number, batch in enumerate(batches(Random(3), 3)):
        rig.ends.ahead_ms = 86_400_000 if number == 1 else 0
        rig.ends.batch, rig.clock.wall = batch, batch.now * 1000 + rig.ends.ahead_ms
        rig.sent.clear()
        rig.job().take(_records(spark, batch), number)
        expected = {each.consumer: each.total_lag for each in model.take(batch)}
    assert rig.seen[-1].now_ms == batch.now * 1000
    assert {each.event.consumer: each.event.total_lag for each in rig.sent} == expected
    kept = pq.read_table(tmp_path / "checkpoint/state/batch=2/kind=log_ends")
    assert max(kept.column("at_ms").to_pylist()) <= batch.now * 1000


@pytest.mark.parametrize(("kind", "found"), [("state", r"\[0, 0, 0, 3\]"), ("notification", r"\[1, 3, \d+, 0\]")])
def test_a_state_that_lost_files_in_a_power_cut_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str, found: str
) -> None:
    rig = _Rig(spark, tmp_path, _ALL_GROUPS)
    rig.ends.batch = next(batches(Random(3), 1))
    with pytest.raises(_Crash):
        rig.job(_fail).take(_records(spark, rig.ends.batch), 0)
    assert rig.job().note().batch == 0
    shutil.rmtree(tmp_path / f"checkpoint/state/batch=0/kind={kind}")
    with pytest.raises(UnusableState, match=f"is damaged.* are {found}, not"):
        rig.job().note()


def test_a_checkpoint_of_another_version_or_with_rings_of_another_length_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    def job(intervals: int) -> Evaluate:
        return _Rig(spark, tmp_path, EvaluateRules(RuleSet("r", intervals))).job()

    note = job(10).note()
    state = tmp_path / "checkpoint" / "state.json"
    state.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, version=1)))
    with pytest.raises(UnusableState, match="has version 1, and this Karrot reads version 3: use the Karrot"):
        job(10).note()
    state.write_bytes(msgspec.json.encode(note))
    with pytest.raises(UnusableState, match="have 10 intervals, and --rules asks for 20: use the same intervals"):
        job(20).note()
