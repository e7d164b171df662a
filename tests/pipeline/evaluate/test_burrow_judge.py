"""The judge in Spark sends the notifications of the reference model, batch by batch, through crashes."""

import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
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
from karrot.pipeline.evaluate.burrow_judge import BurrowJudge, JudgedBatch
from karrot.pipeline.evaluate.verdict_destinations import Deliver, NotAccepted, RefusedVerdict, to_karrot
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import UnusableState
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.kafka.offset_records import Member, assignment, commit_key, commit_value, group_key, group_value
from support.manual_clock import ManualClock
from support.pipeline.evaluate_model import Batch, Commit, EvaluateModel, Rebalance, batches, comparable
from support.pipeline.judge_batches import batch_of
from support.pipeline.kafka_source_rows import KAFKA_SOURCE_SCHEMA
from support.pipeline.log_end_looks import look_of
from support.servers.background_server import serve_in_thread
from support.servers.verdict_receiver import VerdictReceiver, group_of
from support.service.free_ports import free_port

_ASKED = EvaluateRules(
    notifier=NotifierSettings(threshold=1, interval=30, send_close=True),
    groups=NameFilter(("^g",), ("2$",)),
)


_ALL_GROUPS = EvaluateRules(notifier=_ASKED.notifier)


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


def assert_counted(seen: JudgedBatch, batch: Batch, told: list[LagEvent]) -> None:
    """All groups are told, and the receiver refused one of them."""
    committed = [each for one in told for each in one.partitions if each.end]
    assert (seen.now_ms, seen.groups, seen.partitions) == (batch.now * 1000, len(told), len(committed))
    assert (seen.delivered, len(seen.refused)) == (len(told) - 1, 1)


class _Crash(Exception):  # noqa: N818 (it is one)
    pass


def _fail(_several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
    raise _Crash


class _Rig:
    """Judges on the same checkpoint, one after the other. Each knows only the checkpoint."""

    def __init__(self, spark: SparkSession, place: Path, asked: EvaluateRules, buckets: int = 1) -> None:
        self.spark, self.place, self.asked, self.buckets = spark, place, asked, buckets
        self.clock = ManualClock(wall=1 << 50)
        self.sent, self.seen = list[StoredEvent](), list[JudgedBatch]()

    def deliver(self, several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
        self.sent.extend(several)
        return []

    def judge(self, deliver: Deliver | None = None, **others: Deliver) -> BurrowJudge:
        tables, place = Tables.at(self.spark, str(self.place / "tables")), str(self.place / "judge")
        told = others | {"kafka": deliver or self.deliver}
        return BurrowJudge(
            self.spark, "c", tables, place, self.asked, told, self.buckets, self.seen.append, clock=self.clock
        )

    def batch(self, batch: Batch, number: int, ahead_ms: int = 0, *, is_last: bool = True) -> OffsetsBatch:
        """The records of the batch, and the log ends at its beginning."""
        at_ms = (batch.now - 60) * 1000 + ahead_ms
        ends = [(TopicPartition(*place), LogEnd(at_ms, end)) for place, end in batch.ends.items()]
        look, now_ms = look_of(ends, {topic for topic, _ in batch.ends}), batch.now * 1000 + ahead_ms
        return batch_of(_records(self.spark, batch), number, now_ms, look, is_last=is_last)


@pytest.mark.parametrize("many", [3, pytest.param(12, marks=pytest.mark.deep)])
def test_the_judge_sends_what_the_model_sends_also_after_crashes(
    spark: SparkSession, tmp_path: Path, many: int
) -> None:
    model, rig = EvaluateModel(_ASKED), _Rig(spark, tmp_path, _ASKED, buckets=3)
    sent = rig.sent

    def deliver(several: Iterable[StoredEvent]) -> list[RefusedVerdict]:
        sent.extend(several)
        return [RefusedVerdict.of(each, "Karrot", "too_large") for each in sent[:1]]

    ids: dict[str, str | None] = {}
    seqs: list[int] = []
    for number, batch in enumerate(batches(Random(3), many)):
        taken = rig.batch(batch, number)
        if number % 3 == 1:  # the driver dies while it delivers
            with pytest.raises(_Crash):
                rig.judge(_fail).take(taken)
        sent.clear()
        rig.judge(deliver).take(taken)
        told = [parse_stored(each.body, observed_at_ms=batch.now * 1000, source=Source.KAFKA) for each in sent]
        expected = [each for each in model.take(batch) if each.consumer != "g2"]
        assert sorted(map(comparable, told)) == sorted(map(comparable, expected))
        [kept_state] = (tmp_path / "judge/state").iterdir()
        assert kept_state.name.startswith(f"batch={number}-")
        for group in batch.deleted:
            ids.pop(group, None)
        for each in told:
            if each.incident_id:
                assert ids.setdefault(each.consumer, each.incident_id) == each.incident_id
                if each.status_text == "OK":
                    ids.pop(each.consumer)
        assert_counted(rig.seen[-1], batch, told)
        seqs += (each.seq for each in sent)
        kept = (tmp_path / f"judge/refused/batch={number:012d}.jsonl").read_text().splitlines()
        assert [json.loads(line)["key"] for line in kept] == [sent[0].event_id]
    assert ids
    assert seqs == [*range(1, len(seqs) + 1)]


def test_a_batch_without_records_is_judged_and_a_cluster_without_groups_has_no_verdicts(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig, first = _Rig(spark, tmp_path, _ALL_GROUPS), next(batches(Random(3), 1))
    of_spark = Path(spark.sparkContext._temp_dir)  # a file for each batch would fill the disk
    files = {*of_spark.iterdir()}
    before, after = (first._replace(now=first.now + s, commits=[], deleted={}, rebalances=[]) for s in (-60, 60))
    for number, batch in enumerate((before, first, after)):
        rig.judge().take(rig.batch(batch, number))
    groups = len({each.group for each in first.commits})
    assert [(each.groups, each.delivered) for each in rig.seen] == [(0, 0), (groups, groups), (groups, groups)]
    assert {*of_spark.iterdir()} == files


def test_a_topic_that_was_created_again_is_judged_again_after_the_next_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    rig, place, now = _Rig(spark, tmp_path, _ALL_GROUPS), ("t", 0), 1_700_000_000
    commit = Commit("g", *place, 7, 5, now * 1000 - 500, now * 1000 - 500)
    joined = Rebalance("g", 8, now * 1000 - 400, {place: ("host", "client")})
    steps = [
        Batch(now, {place: 5}, [commit], {}, [joined]),
        Batch(now + 60, {}, [], {}, []),  # the topic does not exist
        Batch(now + 120, {place: 0}, [], {}, []),  # a restarted job polls every topic of the last days
        Batch(now + 180, {place: 1}, [commit._replace(order=9, offset=1, at_ms=(now + 179) * 1000)], {}, []),
    ]
    for number, batch in enumerate(steps):
        rig.judge().take(rig.batch(batch, number))
    assert [each.partitions for each in rig.seen] == [1, 0, 0, 1]


def test_nothing_is_judged_while_more_records_wait(spark: SparkSession, tmp_path: Path) -> None:
    # The four commits that a ring keeps here are from both batches.
    asked, several = EvaluateRules(RuleSet("r", 4), _ASKED.notifier), [*batches(Random(5), 2)]
    model, rig = EvaluateModel(asked), _Rig(spark, tmp_path, asked)
    sent = rig.sent
    for number, batch in enumerate(several):
        is_last = batch is several[-1]
        rig.judge().take(rig.batch(batch, number, is_last=is_last))
        expected = model.take(batch)
        assert bool(sent) is is_last
    assert [each.is_judged for each in rig.seen] == [False, True]
    told = {each.event.consumer: (each.event.status, each.event.total_lag) for each in sent}
    assert told == {each.consumer: (each.status, each.total_lag) for each in expected}


def test_one_batch_by_a_clock_that_was_ahead_silences_no_later_batch(spark: SparkSession, tmp_path: Path) -> None:
    model, rig = EvaluateModel(_ALL_GROUPS), _Rig(spark, tmp_path, _ALL_GROUPS)
    for number, batch in enumerate(batches(Random(3), 3)):
        ahead_ms = 86_400_000 if number == 1 else 0
        rig.clock.wall = batch.now * 1000 + ahead_ms
        rig.sent.clear()
        rig.judge().take(rig.batch(batch, number, ahead_ms))
        expected = {each.consumer: each.total_lag for each in model.take(batch)}
    assert rig.seen[-1].now_ms == batch.now * 1000
    assert {each.event.consumer: each.event.total_lag for each in rig.sent} == expected
    [state] = (tmp_path / "judge/state").glob("batch=2-*")
    kept = pq.read_table(state / "kind=log_ends")
    assert max(kept.column("at_ms").to_pylist()) <= batch.now * 1000


@pytest.mark.parametrize("kind", ["state", "notification"])
def test_a_state_that_lost_files_in_a_power_cut_is_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rig = _Rig(spark, tmp_path, _ALL_GROUPS)
    with pytest.raises(_Crash):
        rig.judge(_fail).take(rig.batch(next(batches(Random(3), 1)), 0))
    assert rig.judge().last_batch() == 0
    [state] = (tmp_path / "judge/state").iterdir()
    shutil.rmtree(state / f"kind={kind}")
    with pytest.raises(UnusableState, match=r"is damaged.* it has 2 files of [\d,]+ bytes, not 3 of"):
        rig.judge().note()


def test_a_checkpoint_of_another_version_or_cluster_or_with_rings_of_another_length_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    def judge(intervals: int) -> BurrowJudge:
        return _Rig(spark, tmp_path, EvaluateRules(RuleSet("r", intervals))).judge()

    note = judge(10).note()
    state = tmp_path / "judge" / "state.json"
    state.parent.mkdir()
    state.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, version=1)))
    with pytest.raises(UnusableState, match="has version 1, and this Karrot reads version 5: use the Karrot"):
        judge(10).note()
    state.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, cluster="prod")))
    with pytest.raises(UnusableState, match=r"/state.json is of the cluster prod, not of c: use another --checkpoint$"):
        judge(10).note()
    state.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, cluster="")))  # by an earlier Karrot
    assert judge(10).note().batch == -1
    state.write_bytes(msgspec.json.encode(note))
    with pytest.raises(UnusableState, match="have 10 intervals, and --rules asks for 20: use the same intervals"):
        judge(20).note()


def test_verdicts_wait_for_a_receiver_that_is_away_and_each_change_and_the_newest_arrive_once_and_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The group g2 is OK, opens an incident, keeps it, closes it and opens another one. Batches 0 to 3 are not taken.
    asked, port, accepted = EvaluateRules(RuleSet("r", 4), _ASKED.notifier), free_port(), list[bytes]()
    rig = _Rig(spark, tmp_path, asked)

    def take(number: int, batch: Batch) -> None:
        away = to_karrot(f"http://127.0.0.1:{port}", None, lists_all=True, retries=0)
        rig.judge(karrot=away).take(rig.batch(batch, number))

    several = [*enumerate(batches(Random(29), 5))]
    for each in several[:2]:
        take(*each)
    assert (len(rig.sent), accepted) == (rig.seen[0].delivered + rig.seen[1].delivered, [])
    for each, answer in zip(
        several[2:], (lambda group: 503 if group == "g2" else 202, None, lambda _: 202), strict=True
    ):
        with serve_in_thread(VerdictReceiver(port, answer or (lambda _group: 503), accepted)):
            take(*each)

    assert len({each.event_id for each in rig.sent}) == len(rig.sent), "the other receiver gets each verdict once"
    for group in {each.event.consumer for each in rig.sent}:
        of_group = [each for each in rig.sent if each.event.consumer == group]
        said = [(each.event.status_text, each.event.incident_id) for each in of_group]
        got = [each for each in accepted if group_of(each) == group]
        assert got == [each.body for each in of_group if each.body in got], "once and in order"
        changed = {each.body for at, each in enumerate(of_group) if at == 0 or said[at] != said[at - 1]}
        assert changed | {of_group[-1].body} <= {*got}
        if group == "g2":
            assert [status for status, _ in said] == ["OK", "ERR", "ERR", "OK", "ERR"]
    assert [each.waiting > 0 for each in rig.seen] == [True, True, True, True, False]
    assert ["503" in each.problem for each in rig.seen] == [False, False, True, True, False]
    assert sum(each.superseded for each in rig.seen) == len(rig.sent) - len(accepted) > 0
    assert sum(each.delivered for each in rig.seen) == len(rig.sent) + len(accepted)


@pytest.mark.deep
def test_the_judge_stops_if_too_many_verdicts_wait_or_if_only_a_restart_helps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karrot.pipeline.evaluate.burrow_judge.MOST_WAITING", 2)
    rig, accepted, several = _Rig(spark, tmp_path, _ALL_GROUPS), list[bytes](), [*batches(Random(29), 3)]

    def take(number: int, status: int) -> None:
        with serve_in_thread(VerdictReceiver(0, lambda _group: status, accepted)) as port:
            karrot = to_karrot(f"http://127.0.0.1:{port}", None, lists_all=True, retries=0)
            rig.judge(karrot=karrot).take(rig.batch(several[number], number))

    for _ in range(2):  # each start repeats the batch
        with pytest.raises(NotAccepted, match=r"answered HTTP 503$"):
            take(0, 503)
    assert len(rig.sent) == rig.seen[0].waiting == 3
    take(0, 202)
    assert (len(rig.sent), len(accepted)) == (3, 3)
    monkeypatch.undo()
    with pytest.raises(NotAccepted, match=r"answered HTTP 401$"):
        take(1, 401)
    take(1, 202)  # the next start repeats a batch that the judge has
    take(2, 202)
    assert sorted(each.body for each in rig.sent) == sorted(accepted)
