"""The rule in Spark gives the lines and the state of the rule in plain Python, batch by batch."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest
from pyspark.sql import SparkSession

from karrot.clock import Clock, SystemClock
from karrot.event import ClusterPartition, LogEnd, TopicPartition
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.stale.stale_judge import DeliverySummary, StaleJudge
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import UnusableState
from support.manual_clock import ManualClock
from support.pipeline.judge_batches import CommitRecord, decoded_batch
from support.pipeline.stale_watch import BatchCommits, GroupPartition, RecordPosition, StaleState, StaleWatch

pytestmark = pytest.mark.timeout(600)  # each batch is a few queries, and the machine may be busy

_LENGTH: Final = dt.timedelta(seconds=128)  # samples closer than 2 s are thinned
_MONTH_S: Final = 32 * 86_400
_CLUSTER: Final = "größe"
Record = tuple[str, str | None, str, int, int | None, int, int | None]
"""A commit or, without a group and a ``log_offset``, a sample."""


class _Pair:
    """Both rules. The one in Spark starts again for every batch, and knows only the checkpoint."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.batch = spark, place, -1
        self.model = StaleWatch(_LENGTH, StaleState())
        self.take([])  # the first batch reads the tables, which are empty

    def take(self, records: list[Record]) -> list[str]:
        """Give a batch to both rules, compare all that they say and keep, and return the lines."""
        self.batch += 1
        expected = self.model.take(self.batch, *_reduced(records))
        lines = self.in_spark(records)
        assert sorted(lines) == sorted(expected)
        assert self.saved() == _comparable(self.model.saved([]))
        return lines

    def in_spark(self, records: list[Record]) -> list[str]:
        """Give the batch to the rule in Spark, and return the lines."""
        lines, told = list[str](), list[DeliverySummary]()
        judge = _judge(self.spark, self.place, lines.append, told.append)
        judge.take(_batch(self.spark, self.place, self.batch, records))
        assert told == [DeliverySummary(delivered=len(lines))]
        return lines

    def saved(self) -> StaleState:
        """The state of the rule in Spark, as the plain rule has it."""
        judge = _judge(self.spark, self.place, print)
        standings, note = [(_CLUSTER, *row) for row in judge.standings().collect()], judge.folder.note()
        samples = [[*each] for each in zip(*judge.samples().ends[1:3], strict=True)]
        sources, places = judge.samples().ends.source, [*judge.samples().places]
        of_place = {(_CLUSTER, *place): list[list[int]]() for place in places}
        for source, sample in zip(sources.tolist(), samples, strict=True):
            of_place[_CLUSTER, *places[source]].append([int(each) for each in sample])
        return _comparable(
            msgspec.convert(
                {
                    "batch": note.batch,
                    "standings": [(row[:4], (row[4], row[5:7], row[7])) for row in standings],
                    "told": [(row[:4], row[8:10]) for row in standings if row[8] is not None],
                    "looks": [*of_place.items()],
                    "held_until_ms": {_CLUSTER: note.held_until_ms} if note.sampled_ms else {},
                    "unsent": note.unsent,
                },
                StaleState,
            )
        )


def _judge(
    spark: SparkSession,
    place: Path,
    deliver: Callable[[str], None],
    tell: Callable[[DeliverySummary], object] = lambda _summary: None,
    clock: Clock | None = None,
) -> StaleJudge:
    tables, since = Tables(str(place / "tables")), dt.date(2026, 1, 1)
    return StaleJudge(
        spark, _CLUSTER, tables, str(place), _LENGTH, since, {"stdout": deliver}, tell, clock or SystemClock()
    )


def _batch(spark: SparkSession, place: Path, number: int, records: list[Record]) -> OffsetsBatch:
    commits = [
        CommitRecord(group, topic, partition, offset, at_ms, log_offset or 0)
        for _, group, topic, partition, offset, at_ms, log_offset in records
        if group is not None
    ]
    ends = [
        (TopicPartition(topic, partition), LogEnd(at_ms, offset))
        for _, group, topic, partition, offset, at_ms, _ in records
        if group is None and offset is not None
    ]
    return decoded_batch(spark, place, number, commits, ends)


def _comparable(state: StaleState) -> StaleState:
    lists = {name: sorted(getattr(state, name), key=lambda each: each[0]) for name in ("standings", "told", "looks")}
    return msgspec.structs.replace(state, **lists)


def _reduced(
    records: list[Record],
) -> tuple[dict[GroupPartition, BatchCommits], dict[ClusterPartition, list[LogEnd]]]:
    """Reduce a batch to the newest record of each partition, and the first record of its run of equal offsets."""
    commits, samples = dict[GroupPartition, list[Any]](), dict[ClusterPartition, list[LogEnd]]()
    for cluster, group, topic, partition, offset, at_ms, log_offset in records:
        if group is not None and log_offset is not None:
            each = (RecordPosition(at_ms, log_offset), offset)
            commits.setdefault(GroupPartition(cluster, group, topic, partition), []).append(each)
        elif offset is not None:
            samples.setdefault(ClusterPartition(cluster, topic, partition), []).append(LogEnd(at_ms, offset))
    found = {}
    for key, several in commits.items():
        several.sort(key=lambda each: each[0])
        offset = several[-1][1]
        first = len(several) - 1
        while first and several[first - 1][1] == offset:
            first -= 1
        before = several[first - 1][0] if first else None
        found[key] = BatchCommits(offset, several[-1][0], several[first][0], before)
    return found, samples


class _Stream:
    """Random batches of a cluster: late, repeated and missing records, tombstones, gaps, catching up, months."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.place = rng, 0
        self.now_s = dict.fromkeys((_CLUSTER,), 1_000_000.0)
        self.ends: dict[tuple[str, str, int], int] = {}
        self.old: list[Record] = []

    def batches(self, many: int) -> Iterator[list[Record]]:
        for _ in range(many):
            batch = [record for cluster in self.now_s for record in self._of(cluster)]
            self.old += batch
            batch += self.rng.sample(self.old, min(len(self.old), self.rng.choice((0, 0, 0, 12))))
            self.rng.shuffle(batch)
            yield _distinct(batch)

    def _of(self, cluster: str) -> Iterator[Record]:
        rng = self.rng
        began = self.now_s[cluster]
        self.now_s[cluster] += rng.choice((1, 20, 40, 60, 127.9, 128.1, 300))
        if rng.random() < 0.06:
            self.now_s[cluster] += _MONTH_S
        now, behind = self.now_s[cluster], rng.random() < 0.15
        for topic, partition in ((t, p) for t in ("t", "u", "v") for p in range(4)):
            log = (cluster, topic, partition)
            if rng.random() < 0.7:
                for _ in range(rng.choice((1, 1, 2, 8, 40))):
                    self.ends[log] = max(0, self.ends.get(log, 5) + rng.choice((0, 0, 1, 3, 3, -4)))
                    yield (cluster, None, topic, partition, self.ends[log], self._ms(rng.uniform(began, now)), None)
            for group in ("g", "h"):
                for _ in range(rng.choice((0, 0, 0, 1, 2, 4))):
                    at = began - 400 if behind else rng.choice((now, rng.uniform(began, now), began - 30))
                    offset = rng.choice((None, 0, 1, 1, 2, self.ends.get(log, 5)))
                    self.place += rng.choice((1, 1, 1, -1))
                    yield (cluster, group, topic, partition, offset, self._ms(at), 10_000 + self.place)

    @staticmethod
    def _ms(at_s: float) -> int:
        return int(at_s * 2) * 500  # coarse, so that times are often equal


def _distinct(records: list[Record]) -> list[Record]:
    """At most one commit for each place of a partition's log, as in Kafka."""
    commits = {(*each[:4], each[5], each[6]): each for each in records if each[1] is not None}
    return [*commits.values(), *(each for each in records if each[1] is None)]


@pytest.mark.parametrize(("seed", "many"), [(2278, 8), pytest.param(0, 40, marks=pytest.mark.deep)])
def test_random_batches_give_the_lines_and_the_state_of_the_plain_rule(
    spark: SparkSession, tmp_path: Path, seed: int, many: int
) -> None:
    pair, states, kept, held, forgotten = _Pair(spark, tmp_path), list[str](), StaleState(), 0, 0
    for batch in _Stream(Random(seed)).batches(many):
        states += [json.loads(line)["state"] for line in pair.take(batch)]
        before, kept = kept, pair.model.saved([])
        held += sum(at_ms > 0 for at_ms in kept.held_until_ms.values())
        forgotten += len(dict(before.standings).keys() - dict(kept.standings).keys())
    assert min(states.count("stale"), states.count("cleared")) > 10
    assert held > 3
    assert forgotten > 3


def test_a_batch_that_died_before_its_note_is_repeated_and_a_batch_with_a_note_gives_no_lines_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair = _Pair(spark, tmp_path)
    first, batch = _Stream(Random(143)).batches(2)
    pair.take(first)
    judge = _judge(spark, tmp_path, print)
    *_, total = judge.advance(_batch(spark, tmp_path, pair.batch + 1, batch))  # and the driver dies
    assert total > 3
    lines = pair.take(batch)
    assert len(lines) == total
    judge = _judge(spark, tmp_path, print)
    assert judge.last_batch() == pair.batch
    assert judge.lines(pair.batch, 3) == lines[-3:]
    assert pair.in_spark(batch) == []
    [kept] = (tmp_path / "state").iterdir()  # and not the files of the driver that died
    assert kept.name.startswith(f"batch={pair.batch}-")


@pytest.mark.parametrize("ahead_s", [86_400, 2 * _MONTH_S])
def test_one_sample_from_a_clock_that_was_ahead_holds_back_no_later_alert(
    spark: SparkSession, tmp_path: Path, ahead_s: int
) -> None:
    lines, clock, began_ms = list[str](), ManualClock(wall=1_000_000_000), 1_000_000_000

    def take(number: int, end: int, ahead_ms: int = 0) -> None:
        clock.wall = began_ms + number * 60_000 + ahead_ms
        sample: Record = ("c", None, "t", 0, end, clock.wall - 1_000, None)
        alive: Record = ("c", "alive", "t", 0, end, clock.wall - 2_000, number)
        stopped: list[Record] = [("c", "stopped", "t", 0, 5, clock.wall - 3_000, 1_000)] * (number == 1)
        records = [sample, alive, *stopped]
        _judge(spark, tmp_path, lines.append, clock=clock).take(_batch(spark, tmp_path, number, records))

    take(0, 0)
    take(1, 10)
    take(2, 20, ahead_s * 1_000)
    lines.clear()
    for number in range(3, 8):
        take(number, number * 10 + 10)
    assert [(json.loads(line)["group"], json.loads(line)["state"]) for line in lines][-1:] == [("stopped", "stale")]
    judge = _judge(spark, tmp_path, print, clock=clock)
    (alive,) = judge.standings().where("consumer = 'alive'").collect()
    assert (alive.offset, alive.at_ms) == (80, clock.wall - 2_000)


def test_the_state_of_another_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    place.write_text('{"version":4,"batch":7}')
    said = f"{place} has version 4, and this Karrot reads version 3: use the Karrot that wrote it, or another"
    with pytest.raises(UnusableState, match=f"^{re.escape(said)} --checkpoint$"):
        _judge(spark, tmp_path, print).last_batch()


@pytest.mark.parametrize("text", ["", '{"version":3,"bat', '{"version":2,"batch":7,"sampled_ms":{"prod":1}}'])
def test_a_note_that_cannot_be_read_is_refused(spark: SparkSession, tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UnusableState, match=r"state.json is damaged, or another version .*: use another --checkpoint"):
        _judge(spark, tmp_path, print).last_batch()


def test_an_alert_comes_although_each_batch_takes_longer_than_the_duration(spark: SparkSession, tmp_path: Path) -> None:
    pair, began_ms = _Pair(spark, tmp_path), 1_000_000_000

    def samples(first: int) -> list[Record]:
        return [(_CLUSTER, None, "t", 0, 10 + at, began_ms + 60_000 * at, None) for at in range(first, first + 5)]

    assert pair.take([(_CLUSTER, "g", "t", 0, 5, began_ms, 1), *samples(0)[:1]]) == []
    [alert] = pair.take(samples(1))
    assert json.loads(alert)["state"] == "stale"


def test_an_alert_comes_although_log_ends_are_read_until_long_after_the_time_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines, began_ms, step_ms = list[str](), 1_000_000_000, 5 * _LENGTH // dt.timedelta(milliseconds=1)
    for number in range(4):  # the first batch reads the tables, which are empty
        now_ms = began_ms + number * step_ms
        polls = range(now_ms - step_ms // 2, now_ms + step_ms // 2, step_ms // 10)
        batch: list[Record] = [(_CLUSTER, None, "t", 0, 10 + at_ms, at_ms, None) for at_ms in polls]
        if number == 1:
            batch.append((_CLUSTER, "g", "t", 0, 5, now_ms, 1))
        _judge(spark, tmp_path, lines.append).take(_batch(spark, tmp_path, number, batch)._replace(now_ms=now_ms))
    assert [json.loads(line)["state"] for line in lines] == ["stale"]
