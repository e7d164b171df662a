"""``karrot pipeline offsets``: writes Kafka's committed offsets to tables, and as JSON to a topic."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals
from karrot.cli.options import asked_for, read_span
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.source_options import KAFKA, Reached, kafka_of, kafka_options
from karrot.cli.pipeline.spark_options import read_trigger, spark_options, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.offsets.job import OffsetsSummary
    from karrot.pipeline.offsets.log_ends import PollSummary
    from karrot.pipeline.store.tables import Tables


_PARQUET = "parquet"


@click.command()
@click.option("--source", type=click.Choice([KAFKA, _PARQUET]), default=KAFKA, show_default=True)
@click.option("--cluster", required=True, metavar="NAME", help="What the cluster is called in the tables.")
@spark_options
@kafka_options
@click.option("--json-topic", metavar="TOPIC", help="Publish each commit there too, as JSON; it must exist.")
@click.option(
    "--ends-every",
    default="30s",
    show_default=True,
    callback=read_span(86_400),
    help="How often to look where the logs end.",
)
@click.option("--input", "directory_in", metavar="DIR", help="With --source parquet: files of the same columns.")
@click.option("--ends-input", metavar="DIR", help="With --source parquet: files that say where the logs ended.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "--trigger", default="10 seconds", show_default=True, callback=read_trigger, help="How often to take what came."
)
@click.option("--checkpoint", help="What was taken so far; below the tables if not given.")
@click.option("--json", "as_json", is_flag=True, help="The sum as one line of JSON.")
def offsets(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Take __consumer_offsets into the tables commits, members, ends and quarantine.

    From Kafka by Spark's own connector, whose jars are no part of PySpark: say so with --conf spark.jars.packages=…
    Or from Parquet files with the columns key, value, topic, partition, offset and timestamp.

    Every record is accounted for. Run it again at any time, after a crash too; but never twice at a time for one
    cluster on the same tables. What is on the JSON topic may come twice after a crash.

    Exit code 1 if a batch failed, 2 if Spark cannot run here, the connector is missing or there is nothing to read.
    """
    work = _Kafka.of(asked) if asked["source"] == KAFKA else _Files.of(asked)
    work.require_answer()
    spark = started("offsets", master, conf)
    from karrot.pipeline.store.tables import Tables

    stop = threading.Event()
    if asked["follow"]:
        end_on_signals(stop)
    try:
        with errors_as_sentences(asked):
            total = work.run(spark, Tables(directory), stop)
    finally:
        spark.stop()
    click.echo(json.dumps(total.as_dict()) if asked["as_json"] else str(total))


@dataclass(frozen=True)
class _Work:
    """The options of both sources. If ``every`` is ``None``, the command reads what is there and ends."""

    cluster: str
    every: str | None
    checkpoint: str | None
    tell: Callable[[object], object]

    def checkpoint_in(self, tables: "Tables") -> str:
        """The checkpoint. Each cluster has its own, as the tables may hold several clusters."""
        return self.checkpoint or tables.checkpoint(f"offsets-{quote(self.cluster, safe='')}")

    def require_answer(self) -> None:
        """Raises NotDone if the source does not answer: Spark would try for minutes."""


@dataclass(frozen=True)
class _Kafka(_Work):
    """Reads Kafka itself, and polls where its logs end."""

    reached: Reached
    ends_every: timedelta
    json_topic: str | None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Raises Refused."""
        reached = kafka_of(asked, "karrot-offsets")
        for name, option in (("directory_in", "--input"), ("ends_input", "--ends-input")):
            if asked[name] is not None:
                raise Refused(f"{option} is read with --source parquet alone")
        return cls(**_common(asked), reached=reached, ends_every=asked["ends_every"], json_topic=asked["json_topic"])

    def require_answer(self) -> None:
        """Ask Kafka, and wait as long as its client does: 10 s."""
        from karrot.watch.cluster_interface import ClusterError

        try:
            self.reached.kafka.partitions([])
        except ClusterError as error:
            brokers = self.reached.brokers
            said = f"Kafka at {','.join(brokers.addresses)} does not answer: {error}"
            raise NotDone(brokers.without_values(said)) from error

    def run(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "OffsetsSummary":
        """Take the records, and poll where the logs end: again and again, or once after the last record."""
        from karrot.clock import SystemClock
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.json_publisher import JsonTopic
        from karrot.pipeline.offsets.log_ends import EndsPoll, topics_of_late
        from karrot.pipeline.stream.query_runner import run_queries
        from karrot.pipeline.stream.record_sources import RecordsFromKafka

        brokers, kafka, _ = self.reached
        poll = EndsPoll(spark, tables, self.cluster, kafka, SystemClock(), self.ends_every, self.tell)
        poll.seen(topics_of_late(spark, tables, self.cluster))
        job = LandOffsets(
            spark,
            RecordsFromKafka(*self.reached),
            self.cluster,
            tables,
            self.checkpoint_in(tables),
            JsonTopic(brokers, self._known(self.json_topic)) if self.json_topic else None,
            tell=self.tell,
            seen=poll.seen,
        )
        follow = self.every is not None
        run_queries(
            [job.start(self.every)], stop=stop, follow=follow, beside=poll.look_if_due if follow else lambda: None
        )
        if not follow:
            poll.look_if_due()
        return _with_looks(job.total, poll.total)

    def _known(self, topic: str) -> str:
        """The topic, if it exists. Otherwise Spark would wait a minute for it, and then report another error."""
        if topic not in self.reached.kafka.partitions([topic]):
            raise Refused(f"--json-topic {topic}: there is no such topic; create it (kafka-topics --create)")
        return topic


@dataclass(frozen=True)
class _Files(_Work):
    """Reads Parquet files of records, and of log ends if there are some."""

    directory: str
    ends: str | None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Raises Refused."""
        if asked["directory_in"] is None:
            raise Refused("--source parquet needs --input")
        if asked["json_topic"] is not None:
            raise Refused("--json-topic is written with --source kafka alone")
        return cls(**_common(asked), directory=asked["directory_in"], ends=asked["ends_input"])

    def run(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "OffsetsSummary":
        """Take the records and the ends of new files."""
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.log_ends import LandEnds
        from karrot.pipeline.stream.query_runner import run_queries
        from karrot.pipeline.stream.record_sources import RecordsFromParquet

        checkpoint = self.checkpoint_in(tables)
        job = LandOffsets(spark, RecordsFromParquet(self.directory), self.cluster, tables, checkpoint, tell=self.tell)
        queries, looks = [job.start(self.every)], None
        if self.ends is not None:
            looks = LandEnds(spark, self.ends, self.cluster, tables, f"{checkpoint}-ends")
            queries.append(looks.start(self.every))
        run_queries(queries, stop=stop, follow=self.every is not None)
        return _with_looks(job.total, looks.total) if looks else job.total


def _with_looks(total: "OffsetsSummary", looked: "PollSummary") -> "OffsetsSummary":
    return replace(total, looks=looked.written, bad_looks=looked.left_out)


def _common(asked: Mapping[str, Any]) -> dict[str, Any]:
    from karrot.settings import types

    return {
        "cluster": asked_for(types.text, "cluster", asked),
        "every": asked["trigger"] if asked["follow"] else None,
        "checkpoint": asked["checkpoint"],
        "tell": click.echo if asked["follow"] and not asked["as_json"] else lambda _told: None,
    }
