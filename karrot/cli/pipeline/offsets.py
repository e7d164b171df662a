"""``karrot pipeline offsets``: writes Kafka's committed offsets to tables, and to a topic as JSON."""

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals
from karrot.cli.options import follow_option, json_option, name_option, read_span
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.offsets.job import LandOffsets
    from karrot.pipeline.offsets.log_ends import EndsPoll
    from karrot.pipeline.store.table_files import Tables


@click.command(cls=JobCommand, short_help="Write the records of __consumer_offsets to the tables.")
@click.option(
    "--source",
    type=click.Choice([shared.KAFKA, "parquet"]),
    default=shared.KAFKA,
    help="Where to read the records of __consumer_offsets.",
)
@name_option("--cluster", required=True, help="Name of the cluster in the tables.")
@shared.spark_options
@shared.kafka_options
@click.option(
    "--json-topic", metavar="TOPIC", help="Also publish each commit to this topic, as JSON. The topic must exist."
)
@click.option("--ends-every", default="30s", callback=read_span(86_400), help="How often to sample log end offsets.")
@click.option(
    "--input",
    "directory_in",
    callback=shared.read_spark_place,
    metavar="DIR",
    help="With --source parquet: the files with the records.",
)
@click.option(
    "--ends-input",
    callback=shared.read_spark_place,
    metavar="DIR",
    help="With --source parquet: files with log end offsets.",
)
@follow_option("Continue with new records until Ctrl-C.", default=False)
@shared.trigger_option(default="10s", help="With --follow: how often to read new records.")
@shared.checkpoint_option(help="Folder that records what was read.  [default: a folder in the tables]")
@shared.wait_option
@json_option("Print the summary as one line of JSON.")
def offsets(**asked: Any) -> None:
    """Write the records of __consumer_offsets to the tables "commits", "members", "ends" and "quarantine".

    With --source kafka, the command needs Spark's Kafka connector, which PySpark does not contain. Add the connector
    with the option --conf spark.jars.packages. With --source parquet, the command reads Parquet files with the columns
    key, value, topic, partition, offset and timestamp.

    The command counts every record. You can run it again at any time, even after a crash. After a crash, the JSON topic
    can contain some records twice. Only one command at a time can write the rows of a cluster to the same tables.

    The exit code is 1 if a batch failed or if another command writes these rows. It is 2 if
    Spark cannot run here, if the connector is missing or if there is nothing to read.
    """
    cluster, follow = asked["cluster"], asked["follow"]
    every = asked["every"] if follow else None
    tell = click.echo if follow and not asked["as_json"] else lambda _summary: None
    reached = shared.kafka_of(asked, "karrot-offsets") if asked["source"] == shared.KAFKA else None
    if reached is None:
        if asked["directory_in"] is None:
            raise Refused("--source parquet needs --input")
        if asked["json_topic"] is not None:
            raise Refused("--json-topic needs --source kafka")
    else:
        for name, option in (("directory_in", "--input"), ("ends_input", "--ends-input")):
            if asked[name] is not None:
                raise Refused(f"{option} needs --source parquet")
        require_answer(reached)
    with shared.started("offsets", asked) as (spark, tables):
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.log_ends import LandEnds
        from karrot.pipeline.store.write_lease import offsets_lease, writing
        from karrot.pipeline.stream.record_sources import RecordsFromParquet
        from karrot.pipeline.stream.streaming_queries import repeated, run_queries

        stop = threading.Event()
        if follow:
            end_on_signals(stop)
        command = f"karrot pipeline offsets --cluster {cluster}"
        with writing(spark, tables, offsets_lease(cluster), command, wait=asked["wait"], stop=stop) as leased:
            checkpoint = shared.checkpoint_in(spark, asked, leased.checkpoint(offsets_lease(cluster)))
            if reached is not None:
                work = OffsetsFromKafka(cluster, reached, asked["ends_every"], asked["json_topic"], tell)
                poll = work.poll(spark, leased, stop)
                job = work.job(spark, leased, poll, checkpoint)
                with repeated(poll.look_if_due, stop) if follow else nullcontext():
                    run_queries([job.start(every)], stop=stop, follow=follow)
                if not follow:
                    poll.look()
                looked = poll.total
            else:
                source = RecordsFromParquet(asked["directory_in"])
                job = LandOffsets(spark, source, cluster, leased, checkpoint, tell=tell)
                ends = LandEnds(spark, asked["ends_input"] or "", cluster, leased, f"{checkpoint}-ends")
                queries = [job.start(every), *([ends.start(every)] if asked["ends_input"] else [])]
                run_queries(queries, stop=stop, follow=follow)
                looked = ends.total
            total = replace(job.total, looks=looked.written, bad_looks=looked.left_out)
    click.echo(json.dumps(total.as_dict()) if asked["as_json"] else str(total))


def require_answer(reached: shared.Reached) -> None:
    """Check that Kafka answers within 10 s. Raises NotDone. Without this check, Spark would retry for minutes."""
    from karrot.watch.cluster_interface import ClusterError

    try:
        reached.kafka.partitions([])
    except ClusterError as error:
        brokers = reached.brokers
        said = f"Kafka at {','.join(brokers.addresses)} does not answer: {error}"
        raise NotDone(brokers.without_values(said)) from error


@dataclass(frozen=True)
class OffsetsFromKafka:
    """Reads records and log end offsets from Kafka, for ``karrot pipeline offsets`` and ``karrot pipeline run``."""

    cluster: str
    reached: shared.Reached
    ends_every: timedelta
    json_topic: str | None
    tell: Callable[[object], object] = lambda _summary: None

    def poll(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "EndsPoll":
        from karrot.clock import SystemClock
        from karrot.pipeline.offsets.log_ends import EndsPoll, topics_of_late

        asked = (self.cluster, self.reached.kafka, SystemClock(), self.ends_every, self.tell)
        poll = EndsPoll(spark, tables, *asked, stop=stop)
        poll.seen(topics_of_late(spark, tables, self.cluster))
        return poll

    def job(self, spark: "SparkSession", tables: "Tables", poll: "EndsPoll", checkpoint: str = "") -> "LandOffsets":
        """Return the job that writes the records, and passes the topics of their commits to ``poll``.

        Raises ClusterError if Kafka does not answer, because Spark would retry for minutes.
        """
        from karrot.pipeline.offsets.job import JsonTopic, LandOffsets
        from karrot.pipeline.store.write_lease import offsets_lease
        from karrot.pipeline.stream.record_sources import RecordsFromKafka

        topic = self.json_topic
        found = self.reached.kafka.partitions([topic] if topic else [])
        if topic and topic not in found:  # Spark would wait a minute for the topic
            raise Refused(f"--json-topic {topic}: the topic does not exist; create it (kafka-topics --create)")
        return LandOffsets(
            spark,
            RecordsFromKafka(*self.reached),
            self.cluster,
            tables,
            checkpoint or tables.checkpoint(offsets_lease(self.cluster)),
            JsonTopic(self.reached.brokers, topic) if topic else None,
            tell=self.tell,
            seen=poll.seen,
        )
