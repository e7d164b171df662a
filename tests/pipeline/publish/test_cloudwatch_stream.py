"""Spark, from the archive, and the service, from its log, send the same data to CloudWatch for the same events."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.event import Source
from karrot.event_json_line import encode
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.publish_to_cloudwatch import (
    NEWEST,
    Published,
    Publisher,
    newest,
    publisher_beside,
    start_publishing,
)
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import run_queries
from karrot.reporters.cloudwatch.boto_client import open_client
from support.burrow.lag_events import make_partition
from support.eventlog.appended_events import stored_events
from support.manual_clock import ManualClock
from support.pipeline.archive_segments import HOUR_MS, segment_line, write_segment
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, aws_environment, point_aws_at
from support.reporters.injected_faults import UNAVAILABLE
from support.reporters.reporter_context import options_of
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine

_SETTINGS = {
    "metrics": "Lag,ScalableLag,MaxLag,LagSeconds,Status",
    "layout": "dimensions,legacy",
    "min_complete": "0.5",
    "exclude": "^test-",
}
_GROUP = {"Cluster": "prod-eu", "ConsumerGroup": "orders-svc"}


@pytest.fixture
def fakes(clock: ManualClock) -> Iterator[tuple[ScriptedCloudWatch, ScriptedCloudWatch]]:
    """Start two fakes: the service's, and the one that Spark publishes to."""
    with ExitStack() as stack:
        service, spark = (stack.enter_context(ScriptedCloudWatch(clock_ms=clock.wall_ms)) for _ in range(2))
        yield service, spark


@dataclass
class StreamRig:
    """An archive, the tables and Spark's CloudWatch; ``write`` a segment, then ``stream``."""

    spark: SparkSession
    place: Path
    clock: ManualClock
    fake: ScriptedCloudWatch
    settings: dict[str, str] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)

    def write(self, first: int, lines: list[bytes]) -> None:
        written = write_segment(self.place / "archive", first, lines)
        os.utime(written, (self.clock.wall / 1000, self.clock.wall / 1000))

    def line(self, seq: int, lag: int, *, age_ms: int = 0, consumer: str = "orders-svc") -> bytes:
        at_ms = self.clock.wall - age_ms
        return segment_line(seq, received_at_ms=at_ms, observed_at_ms=at_ms, total_lag=lag, consumer=consumer)

    def start(
        self,
        monkeypatch: pytest.MonkeyPatch,
        told: list[Published],
        wait: Callable[[float], bool] | None = None,
        after: Callable[[], object] = lambda: None,
    ) -> StreamingQuery:
        """Publish with the publisher of a new process, which knows only the checkpoint and the notes."""
        point_aws_at(self.fake, monkeypatch)
        options, checkpoint = options_of("cloudwatch", self.settings), str(self.place / "checkpoint")
        publisher = publisher_beside(self.spark, checkpoint, options, threading.Event())
        client = partial(open_client, options, aws_environment(self.fake.url))
        publisher = Publisher(options, publisher.notes, self.clock, client, wait or self._wait, Random(1))

        def tell(published: Published) -> None:
            told.append(published)
            after()

        source = EventsFromArchive(str(self.place / "archive"))
        return start_publishing(self.spark, source, checkpoint, publisher, tell=tell)

    def stream(self, monkeypatch: pytest.MonkeyPatch) -> Published:
        """Publish all segments in one batch."""
        told = list[Published]()
        run_queries([self.start(monkeypatch, told)], stop=threading.Event(), follow=False)
        (published,) = told
        return published

    def _wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.clock.advance(round(1000 * seconds))
        return False


def _tell(rig: CloudWatchRig, rng: Random, ages_ms: list[int]) -> None:
    """Make a minute of a dozen groups: unknown lags, late and repeated verdicts, incomplete windows, deletions.

    As from a real Burrow, a post is received when it is observed, and is no deletion.
    """
    for _ in range(120):
        rig.clock.advance(rng.choice([0, 3, 40, 400]))
        status = rng.choice(["OK", "WARN", "WARN", "ERR", "NOTFOUND", "STRANGE"])
        unknown = rng.random() < 0.3
        source = rng.choice([Source.WEBHOOK, Source.WEBHOOK, Source.REST] if status != "NOTFOUND" else [Source.REST])
        rig.tell(
            age_ms=0 if source is Source.WEBHOOK else rng.choice(ages_ms),
            cluster=rng.choice(["prod-eu", "prod-us"]),
            consumer=rng.choice([*"abcdefgh", "ü" * 200, "test-x", "burrow-1"]),
            status_text=status,
            source=source,
            total_lag=None if unknown else rng.choice([0, 7, 2**53 + 1, 2**64 - 1]),
            complete=rng.choice([None, 0.2, 1.0]),
            max_lag=rng.choice(
                [None, make_partition(current_lag=rng.randrange(9)), make_partition(topic="__consumer_offsets")]
            ),
            partitions=(make_partition(current_lag=rng.choice([None, 5])),),
        )


def _accepted(fake: ScriptedCloudWatch) -> list[Any]:
    return sorted((each.id, each.timestamp_ms, each.values, str(each.unit), each.resolution) for each in fake.accepted)


def test_spark_and_the_service_send_cloudwatch_the_same_data_for_the_same_events(
    spark: SparkSession,
    tmp_path: Path,
    clock: ManualClock,
    fakes: tuple[ScriptedCloudWatch, ScriptedCloudWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = CloudWatchRig(fakes[0], clock, _SETTINGS)
    streamed = StreamRig(spark, tmp_path, clock, fakes[1], _SETTINGS)
    rng, seen = Random(11), 0
    for ages_ms in ([0, 0, 5_000, 170_000, 250_000], [0, 0, 5_000, 250_000]):
        _tell(service, rng, ages_ms)
        point_aws_at(fakes[0], monkeypatch)
        service.run(1.5)
        events = stored_events(service.log, after=seen)
        streamed.write(seen + 1, [encode(event) for event in events])
        seen = events[-1].seq
        streamed.stream(monkeypatch)
        service.run(28.5)
    assert len(_accepted(fakes[0])) > 80
    assert _accepted(fakes[1]) == _accepted(fakes[0])


def test_cloudwatch_and_the_tables_do_not_wait_for_each_other(
    spark: SparkSession,
    tmp_path: Path,
    clock: ManualClock,
    fakes: tuple[ScriptedCloudWatch, ScriptedCloudWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CloudWatch is down until the tables are written; then a driver dies between a send and its commit."""
    rig = StreamRig(spark, tmp_path, clock, fakes[1])
    rig.write(1, [rig.line(1, 5), b"no line of ours\n", rig.line(2, 7)])
    rig.fake.stand(UNAVAILABLE)

    def dies() -> None:
        raise InterruptedError("killed before the commit")

    def until_then(_seconds: float) -> bool:
        wait_for(lambda: ingest.total.events == 2, 120)
        rig.fake.clear()
        return False

    told = list[Published]()
    ingest = Ingest(spark, EventsFromArchive(str(tmp_path / "archive")), Tables(str(tmp_path / "tables")))
    queries = [ingest.start(), rig.start(monkeypatch, told, until_then, dies)]
    with pytest.raises(StreamingQueryException, match="before the commit"):
        run_queries(queries, stop=threading.Event(), follow=False)
    assert (ingest.total.batches, ingest.total.events, ingest.total.quarantined) == (1, 2, 1)
    assert [(one.events, one.sent, one.is_lost, one.problem[:12]) for one in told] == [(1, 2, False, "unavailable:")]

    # A new process, which knows only the notes, gets the same batch again together with newer events.
    clock.advance(30_000)
    rig.write(4, [rig.line(4, 9), rig.line(3, 6, age_ms=40_000, consumer="late")])
    told.clear()
    run_queries([rig.start(monkeypatch, told)], stop=threading.Event(), follow=False)
    assert told[0] == Published(events=1, left_out={"superseded": 2})
    assert [point.value for point in rig.fake.points("Karrot", "Lag", _GROUP)] == [7, 9]


def test_the_newest_event_of_each_group_and_source_is_kept(spark: SparkSession) -> None:
    now_ms = HOUR_MS + 60_000
    told = [
        segment_line(1, consumer="b", total_lag=1, observed_at_ms=HOUR_MS + 1_000),
        segment_line(2, consumer="a", total_lag=2**64 - 1, observed_at_ms=HOUR_MS + 2_000),
        segment_line(3, consumer="b", total_lag=3, observed_at_ms=HOUR_MS + 3_000),
        segment_line(4, consumer="a", total_lag=None, observed_at_ms=HOUR_MS + 4_000),
        segment_line(5, consumer="b", total_lag=0, observed_at_ms=HOUR_MS + 2_500),  # received late: not the newest
        segment_line(6, consumer="old", observed_at_ms=HOUR_MS - 60_000),
        segment_line(7, consumer="b", observed_at_ms=-(2**63)),
        segment_line(8, consumer="b", received_at_ms=now_ms + 2 * 86_400_000),  # ingest would quarantine it
        segment_line(9, consumer="a", total_lag=2, observed_at_ms=HOUR_MS + 1_500, source=Source.REST),
        b'{"v":1}\n',
        b"no line\n",
    ]
    lines = spark.range(1).select(F.explode(F.lit([line.decode().rstrip("\n") for line in told])).alias("value"))
    read = lines.select("value", F.lit("p").alias("path"), F.timestamp_millis(F.lit(now_ms)).alias("written_at"))
    found = newest(read, now_ms=now_ms, oldest_ms=HOUR_MS)
    assert found.schema.simpleString() == NEWEST.simpleString()
    assert [row.place.seq for row in found.orderBy("first", "place").collect()] == [3, 4, 9]
