"""``karrot pipeline offsets``: writes Kafka's committed offsets to tables, and to a topic as JSON."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals
from karrot.cli.options import asked_for, follow_option, read_span
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.source_options import (
    KAFKA,
    Reached,
    kafka_of,
    kafka_options,
    record_file_options,
    record_source_option,
)
from karrot.cli.pipeline.spark_options import (
    checkpoint_option,
    spark_options,
    started,
    trigger_option,
    wait_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.offsets.job import LandOffsets, OffsetsSummary
    from karrot.pipeline.offsets.log_ends import EndsPoll, PollSummary
    from karrot.pipeline.store.table_files import Tables


@click.command(short_help="Write the records of __consumer_offsets to the tables.")
@record_source_option
@click.option("--cluster", required=True, metavar="NAME", help="Name of the cluster in the tables.")
@spark_options
@kafka_options
@click.option(
    "--json-topic", metavar="TOPIC", help="Also publish each commit to this topic, as JSON. The topic must exist."
)
@click.option(
    "--ends-every",
    default="30s",
    show_default=True,
    callback=read_span(86_400),
    help="How often to sample log end offsets.",
)
@record_file_options
@follow_option("Continue with new records until Ctrl-C.", default=False)
@trigger_option(
    default="10 seconds",
    show_default=True,
    help="With --follow: how often to read new records.",
)
@checkpoint_option(help="Folder that records what was read.  [default: a folder in the tables]")
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def offsets(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write the records of __consumer_offsets to the tables "commits", "members", "ends" and "quarantine".

    With --source kafka, the command needs Spark's Kafka connector, which PySpark does not contain. Add the connector
    with the option --conf spark.jars.packages. With --source parquet, the command reads Parquet files with the columns
    key, value, topic, partition, offset and timestamp.

    The command counts every record. You can run it again at any time, even after a crash. After a crash, the JSON topic
    can contain some records twice. Only one command at a time can write the rows of a cluster to the same tables.

    The exit code is 1 if a batch failed or if another command writes these rows. It is 2 if
    Spark cannot run here, if the connector is missing or if there is nothing to read.
    """
    work = OffsetsFromKafka.of(asked) if asked["source"] == KAFKA else _Files.of(asked)
    work.require_answer()
    with started("offsets", master, conf) as spark, errors_as_sentences(asked):
        from karrot.pipeline.store.lease import offsets_lease, writing
        from karrot.pipeline.store.table_files import Tables

        stop, tables = threading.Event(), Tables.at(spark, directory)
        if asked["follow"]:
            end_on_signals(stop)
        name, command = offsets_lease(work.cluster), f"karrot pipeline offsets --cluster {work.cluster}"
        with writing(spark, tables, name, command, wait=asked["wait"], stop=stop) as leased:
            total = work.run(spark, leased, stop)
    click.echo(json.dumps(total.as_dict()) if asked["as_json"] else str(total))


@dataclass(frozen=True)
class _Work:
    """The options of both sources. If ``every`` is ``None``, the command reads the existing records and ends."""

    cluster: str
    every: str | None
    checkpoint: str | None
    tell: Callable[[object], object]

    def checkpoint_in(self, spark: "SparkSession", tables: "Tables") -> str:
        """The folder of the checkpoint. The tables can contain several clusters, so each cluster has its own folder."""
        from karrot.pipeline.store.filesystem import place_for

        own = tables.checkpoint(f"offsets-{quote(self.cluster, safe='')}")
        return place_for(spark, self.checkpoint) if self.checkpoint else own

    def require_answer(self) -> None:
        """Raises NotDone if the source does not answer. Without this check, Spark would try for minutes."""


@dataclass(frozen=True)
class OffsetsFromKafka(_Work):
    """Reads records from Kafka, and samples log end offsets."""

    reached: Reached
    ends_every: timedelta
    json_topic: str | None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Raises Refused."""
        reached = kafka_of(asked, "karrot-offsets")
        for name, option in (("directory_in", "--input"), ("ends_input", "--ends-input")):
            if asked[name] is not None:
                raise Refused(f"{option} needs --source parquet")
        return cls(**_common(asked), reached=reached, ends_every=asked["ends_every"], json_topic=asked["json_topic"])

    def require_answer(self) -> None:
        """Ask Kafka, and wait 10 s for an answer."""
        from karrot.watch.cluster_interface import ClusterError

        try:
            self.reached.kafka.partitions([])
        except ClusterError as error:
            brokers = self.reached.brokers
            said = f"Kafka at {','.join(brokers.addresses)} does not answer: {error}"
            raise NotDone(brokers.without_values(said)) from error

    def run(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "OffsetsSummary":
        """Read the records and sample log end offsets. Without ``every``, sample them once, after the records."""
        from karrot.pipeline.stream.query_runner import run_queries

        poll = self.poll(spark, tables)
        job = self.job(spark, tables, poll)
        follow = self.every is not None
        run_queries(
            [job.start(self.every)], stop=stop, follow=follow, beside=poll.look_if_due if follow else lambda: None
        )
        if not follow:
            poll.look()
        return _with_looks(job.total, poll.total)

    def poll(self, spark: "SparkSession", tables: "Tables") -> "EndsPoll":
        """The poll of log end offsets, for the topics on which groups committed lately."""
        from karrot.clock import SystemClock
        from karrot.pipeline.offsets.log_ends import EndsPoll, topics_of_late

        poll = EndsPoll(spark, tables, self.cluster, self.reached.kafka, SystemClock(), self.ends_every, self.tell)
        poll.seen(topics_of_late(spark, tables, self.cluster))
        return poll

    def job(self, spark: "SparkSession", tables: "Tables", poll: "EndsPoll") -> "LandOffsets":
        """The job that writes the records, and gives the topics of their commits to ``poll``."""
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.json_publisher import JsonTopic
        from karrot.pipeline.stream.record_sources import RecordsFromKafka

        return LandOffsets(
            spark,
            RecordsFromKafka(*self.reached),
            self.cluster,
            tables,
            self.checkpoint_in(spark, tables),
            JsonTopic(self.reached.brokers, self._known(self.json_topic)) if self.json_topic else None,
            tell=self.tell,
            seen=poll.seen,
        )

    def _known(self, topic: str) -> str:
        """Return the topic if it exists. Without this check, Spark waits a minute and then reports another error."""
        if topic not in self.reached.kafka.partitions([topic]):
            raise Refused(f"--json-topic {topic}: the topic does not exist; create it (kafka-topics --create)")
        return topic


@dataclass(frozen=True)
class _Files(_Work):
    """Reads records from Parquet files. The log end offsets come from other, optional Parquet files."""

    directory: str
    ends: str | None

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """Raises Refused."""
        if asked["directory_in"] is None:
            raise Refused("--source parquet needs --input")
        if asked["json_topic"] is not None:
            raise Refused("--json-topic needs --source kafka")
        return cls(**_common(asked), directory=asked["directory_in"], ends=asked["ends_input"])

    def run(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "OffsetsSummary":
        """Read the records and log end offsets of new files."""
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.log_ends import LandEnds
        from karrot.pipeline.stream.query_runner import run_queries
        from karrot.pipeline.stream.record_sources import RecordsFromParquet

        checkpoint = self.checkpoint_in(spark, tables)
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
