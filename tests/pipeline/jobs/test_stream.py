"""The archive published by Spark, and the log of the same events by the service: CloudWatch must not know which."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.event import Source
from karrot.eventline import encode
from karrot.fakes.cloudwatch import UNAVAILABLE, FakeCloudWatch
from karrot.pipeline.fanout import Published, Publisher
from karrot.pipeline.jobs.ingest import Ingest, Summary
from karrot.pipeline.jobs.stream import Fanout, notes_beside, run
from karrot.pipeline.newest import NEWEST, newest
from karrot.pipeline.tables import Tables
from karrot.reporters.cloudwatch.client import open_client
from karrot.reporters.cloudwatch.options import Options
from support.archived import line_with, segment
from support.bodies import make_event, make_partition
from support.clocks import ManualClock
from support.cloudwatch_rig import CloudWatchRig, aws_environment, point_aws_at
from support.eventlog_contract import stored

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM on a busy machine

_SETTINGS = {
    "metrics": "Lag,ScalableLag,MaxLag,LagSeconds,Status",
    "layout": "dimensions,legacy",
    "min_complete": "0.5",
    "exclude": "^test-",
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fakes(clock: ManualClock) -> Iterator[tuple[FakeCloudWatch, FakeCloudWatch]]:
    """The service's, and the one that Spark publishes to."""
    with ExitStack() as stack:
        service, spark = (stack.enter_context(FakeCloudWatch(clock_ms=clock.wall_ms)) for _ in range(2))
        yield service, spark


@dataclass
class StreamRig:
    """An archive, the tables and Spark's CloudWatch; ``write`` a segment, then ``stream``."""

    spark: SparkSession
    place: Path
    clock: ManualClock
    fake: FakeCloudWatch
    settings: dict[str, str] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)

    def write(self, first: int, lines: list[bytes]) -> None:
        written = segment(self.place / "archive", first, lines)
        os.utime(written, (self.clock.wall / 1000, self.clock.wall / 1000))

    def fanout(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Fanout, list[Published]]:
        """A process of its own, which knows the checkpoint and the notes, no more."""
        point_aws_at(self.fake, monkeypatch)
        options, checkpoint = Options.read(self.settings), str(self.place / "checkpoint")
        publisher = Publisher(
            options,
            notes_beside(self.spark, checkpoint),
            self.clock,
            partial(open_client, options, aws_environment(self.fake.url)),
            self._wait,
            Random(1),
        )
        told: list[Published] = []
        return Fanout(self.spark, str(self.place / "archive"), checkpoint, publisher, self.clock, told.append), told

    def stream(self, monkeypatch: pytest.MonkeyPatch) -> Published:
        """Publish what is there, in one batch."""
        job, told = self.fanout(monkeypatch)
        run([job.start()], stop=job.publisher.close, follow=False)
        (published,) = told
        return published

    def _wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.clock.advance(round(1000 * seconds))
        return False


def _tell(rig: CloudWatchRig, rng: Random, ages_ms: list[int]) -> None:
    """A minute of a dozen groups: unknown lags, late and repeated verdicts, windows that are not full, deletions."""
    for _ in range(120):
        rig.clock.advance(rng.choice([0, 3, 40, 400]))
        status = rng.choice(["OK", "WARN", "WARN", "ERR", "NOTFOUND", "STRANGE"])
        unknown = rng.random() < 0.3
        rig.tell(
            age_ms=rng.choice(ages_ms),
            cluster=rng.choice(["prod-eu", "prod-us"]),
            consumer=rng.choice([*"abcdefgh", "ü" * 200, "test-x", "burrow-1"]),
            status_text=status,
            source=rng.choice([Source.WEBHOOK, Source.WEBHOOK, Source.REST]),
            total_lag=None if unknown else rng.choice([0, 7, 2**53 + 1, 2**64 - 1]),
            complete=rng.choice([None, 0.2, 1.0]),
            max_lag=rng.choice(
                [None, make_partition(current_lag=rng.randrange(9)), make_partition(topic="__consumer_offsets")]
            ),
            partitions=(make_partition(current_lag=rng.choice([None, 5])),),
        )


def _accepted(fake: FakeCloudWatch) -> list[Any]:
    return sorted((each.id, each.timestamp_ms, each.values, str(each.unit), each.resolution) for each in fake.accepted)


def test_for_the_same_events_cloudwatch_is_sent_the_same_by_spark_as_by_the_service(
    spark: SparkSession,
    tmp_path: Path,
    clock: ManualClock,
    fakes: tuple[FakeCloudWatch, FakeCloudWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = CloudWatchRig(fakes[0], clock, _SETTINGS)
    streamed = StreamRig(spark, tmp_path, clock, fakes[1], _SETTINGS)
    rng, seen = Random(11), 0
    for ages_ms in ([0, 0, 5_000, 170_000, 250_000], [0, 0, 5_000, 250_000]):
        _tell(service, rng, ages_ms)
        point_aws_at(fakes[0], monkeypatch)
        service.run(1.5)
        events = stored(service.log, after=seen)
        streamed.write(seen + 1, [encode(event) for event in events])
        seen = events[-1].seq
        streamed.stream(monkeypatch)
        service.run(28.5)
    assert len(_accepted(fakes[0])) > 100
    assert _accepted(fakes[1]) == _accepted(fakes[0])
