"""The rule in Spark gives the lines and the state of the rule in plain Python, batch by batch."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from karrot.cli.errors import Refused, valid
from karrot.clock import Clock, SystemClock
from karrot.event import ClusterPartition, LogEnd
from karrot.pipeline.stale.alert_job import DeliverySummary, PartitionState, StaleAlerts
from karrot.pipeline.store.table_files import Tables
from support.manual_clock import ManualClock
from support.pipeline.stale_watch import BatchCommits, GroupPartition, RecordPosition, StaleState, StaleWatch

pytestmark = pytest.mark.timeout(600)  # each batch is a few queries, and the machine may be busy

_LENGTH: Final = dt.timedelta(seconds=128)  # samples closer than 2 s are thinned
_MONTH_S: Final = 32 * 86_400
_COLUMNS: Final = (
    "cluster string, consumer string, topic string, partition int, offset bigint, at_ms bigint, log_offset bigint"
)

Record = tuple[str, str | None, str, int, int | None, int, int | None]
"""A commit or, without a group and a ``log_offset``, a sample."""


class _Pair:
    """Both rules. The one in Spark starts again for every batch, and knows only the checkpoint."""

    def __init__(self, spark: SparkSession, place: Path, state: StaleState | None = None) -> None:
        self.spark, self.place, self.batch = spark, place, -1 if state is None else state.batch
        self.model = StaleWatch(_LENGTH, state or StaleState())

    def take(self, records: list[Record], waiting: Sequence[str] = ()) -> list[str]:
        """Give a batch to both rules, compare all that they say and keep, and return the lines.

        ``waiting`` are the lines that the last batch left.
        """
        self.batch += 1
        expected = self.model.take(self.batch, *_reduced(records))
        lines = self.in_spark(records)
        assert lines[: len(waiting)] == [*waiting]
        assert sorted(lines) == sorted([*waiting, *expected])
        assert self.saved() == _comparable(self.model.saved([]))
        return lines

    def in_spark(self, records: list[Record]) -> list[str]:
        """Give the batch to the rule in Spark, and return the lines."""
        lines, told = list[str](), list[DeliverySummary]()
        job = _job(self.spark, self.place, lines.append, told.append)
        job.take(_frame(self.spark, self.place, records), self.batch)
        assert told == [DeliverySummary(delivered=len(lines))]
        return lines

    def saved(self) -> StaleState:
        """The state of the rule in Spark, as the plain rule has it."""
        state = PartitionState(self.spark, str(self.place))
        standings = state.standings().collect()
        return _comparable(
            msgspec.convert(
                {
                    "batch": state.note().batch,
                    "standings": [
                        (tuple(row[:4]), (row.offset, (row.at_ms, row.log_offset), row.since_ms)) for row in standings
                    ],
                    "told": [
                        (tuple(row[:4]), (row.alert_offset, row.alert_since_ms))
                        for row in standings
                        if row.alert_offset is not None
                    ],
                    "looks": [
                        (tuple(row[:3]), [tuple(each) for each in row.samples]) for row in state.samples().collect()
                    ],
                    "held_until_ms": state.note().held_until_ms,
                    "unsent": state.note().unsent,
                },
                StaleState,
            )
        )


def _job(
    spark: SparkSession,
    place: Path,
    deliver: Callable[[str], None],
    tell: Callable[[DeliverySummary], object] = lambda _summary: None,
    clock: Clock | None = None,
) -> StaleAlerts:
    tables, since = Tables(str(place / "tables")), dt.date(2026, 1, 1)
    return StaleAlerts(spark, tables, str(place), _LENGTH, since, deliver, tell, clock or SystemClock())


def _comparable(state: StaleState) -> StaleState:
    lists = {name: sorted(getattr(state, name), key=lambda each: each[0]) for name in ("standings", "told", "looks")}
    return msgspec.structs.replace(state, **lists)


def _frame(spark: SparkSession, place: Path, records: list[Record]) -> DataFrame:
    """The records as Spark's source gives them, without Python workers."""
    names = [each.split()[0] for each in _COLUMNS.split(", ")]
    path = place / "records.json"
    path.write_text("".join(json.dumps(dict(zip(names, record, strict=True))) + "\n" for record in records))
    return spark.read.schema(_COLUMNS).json(str(path)).repartition(2)


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
    for log, ends in samples.items():
        horizon = max(ends).at_ms - _LENGTH // dt.timedelta(milliseconds=1)
        oldest = max((each.at_ms for each in ends if each.at_ms <= horizon), default=0)
        samples[log] = [each for each in ends if each.at_ms >= oldest]
    return found, samples


class _Stream:
    """Random batches of some clusters: late, repeated and missing records, tombstones, gaps, catching up, months."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.place = rng, 0
        self.now_s = dict.fromkeys(("a", "b", "größe"), 1_000_000.0)
        self.ends: dict[tuple[str, str, int], int] = {}
        self.old: list[Record] = []

    def batches(self, many: int) -> Iterator[list[Record]]:
        for _ in range(many):
            batch = [record for cluster in self.now_s if self.rng.random() < 0.85 for record in self._of(cluster)]
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


@pytest.mark.parametrize(("seed", "many"), [(123, 6), pytest.param(4, 24, marks=pytest.mark.deep)])
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
    first, batch = _Stream(Random(17)).batches(2)
    pair.take(first)
    state = PartitionState(spark, str(tmp_path))
    state.advance(pair.batch + 1, _frame(spark, tmp_path, batch), _LENGTH)  # and the driver dies
    _, total = state.lines(pair.batch + 1, 3)
    assert total > 3
    lines = pair.take(batch)
    assert len(lines) == total
    assert state.lines(pair.batch, 3) == (lines[-3:], total)
    assert pair.in_spark(batch) == []
    assert [each.name for each in (tmp_path / "state").iterdir()] == [f"batch={pair.batch}"]


@pytest.mark.parametrize("ahead_s", [86_400, 2 * _MONTH_S])
def test_one_sample_from_a_clock_that_was_ahead_holds_back_no_later_alert(
    spark: SparkSession, tmp_path: Path, ahead_s: int
) -> None:
    lines, clock, began_ms = list[str](), ManualClock(wall=1_000_000_000), 1_000_000_000

    def take(number: int, end: int, ahead_ms: int = 0) -> None:
        clock.wall = began_ms + number * 60_000 + ahead_ms
        sample: Record = ("c", None, "t", 0, end, clock.wall - 1_000, None)
        alive: Record = ("c", "alive", "t", 0, end, clock.wall - 2_000, number)
        stopped: list[Record] = [("c", "stopped", "t", 0, 5, clock.wall - 3_000, 1_000)] * (number == 0)
        records = _frame(spark, tmp_path, [sample, alive, *stopped])
        _job(spark, tmp_path, lines.append, clock=clock).take(records, number)

    take(0, 10)
    take(1, 20, ahead_s * 1_000)
    lines.clear()
    for number in range(2, 7):
        take(number, number * 10 + 10)
    assert [(json.loads(line)["group"], json.loads(line)["state"]) for line in lines][-1:] == [("stopped", "stale")]
    (alive,) = PartitionState(spark, str(tmp_path), clock).standings().where("consumer = 'alive'").collect()
    assert (alive.offset, alive.at_ms) == (70, clock.wall - 2_000)


@pytest.mark.parametrize(("note", "version"), [('{"version":3,"batch":7}', 3), ('{"batch":7,"standings":[]}', 1)])
def test_the_state_of_another_version_is_refused(spark: SparkSession, tmp_path: Path, note: str, version: int) -> None:
    place = tmp_path / "state.json"
    place.write_text(note)
    said = f"{place} has version {version}, and this Karrot reads version 2: use the Karrot that wrote it, or another"
    with pytest.raises(Refused, match=f"^{re.escape(said)} --checkpoint$"):
        valid(_job(spark, tmp_path, print).start)
    assert place.read_text() == note
