"""``karrot pipeline offsets``: writes Kafka's committed offsets to tables and a topic, and judges the groups."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, valid
from karrot.cli.options import config_option, json_option, name_option, pattern_option, read_span
from karrot.cli.pipeline import judging as to
from karrot.cli.pipeline import spark_options as shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
    from karrot.pipeline.offsets.job import LandOffsets, OffsetsSummary
    from karrot.pipeline.offsets.log_ends import LogEndPolls, PollSummary
    from karrot.pipeline.store.table_files import Tables

_THRESHOLDS: Final = {"OK": 1, "WARN": 2, "ERR": 3}
_JUDGES: Final = {
    to.BURROW: (
        "sends the verdicts of Burrow's rules",
        (
            "rules",
            "threshold",
            "partitions",
            "group_allowlist",
            "group_denylist",
            "send_interval",
            "expire_group",
            "config",
        ),
    ),
    to.STALE: ("sends an alert when an offset stops moving", ("length", "look_back")),
}
"""The judges: what each does, and the options that only it has."""

_span = read_span(366 * 86_400)


@click.command(
    cls=shared.CommandInSections,
    sections={f"The judge {judge} {does}": names for judge, (does, names) in _JUDGES.items()},
    short_help="Write committed offsets to the tables, and judge the groups.",
)
@click.option(
    "--source",
    type=click.Choice([shared.KAFKA, "parquet"]),
    default=shared.KAFKA,
    help="Where to read the records of __consumer_offsets.",
)
@name_option("--cluster", required=True, help="Name of the cluster in the tables, verdicts and alerts.")
@shared.spark_options
@shared.kafka_options
@click.option(
    "--follow/--once",
    default=None,
    help="Continue until Ctrl-C, or read the existing records, and end.  [default: --follow with --judge, else --once]",
)
@click.option(
    "--every",
    default="60s",
    callback=read_span(86_400),
    metavar="DURATION",
    help="With --follow: how often to read new records and judge all groups.",
)
@click.option(
    "--ends-every",
    callback=_span,
    help="How often to ask Kafka for log end offsets.  [default: 10s with --judge, else 30s]",
)
@click.option(
    "--json-topic", metavar="TOPIC", help="Also publish each commit to this topic, as JSON. The topic must exist."
)
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
@shared.checkpoint_option(
    help="Folder that records what was read, and the state of the judges.  [default: a folder in the tables]"
)
@shared.wait_option
@json_option("Print the summary as one line of JSON.")
@shared.metrics_port_option
@click.option(
    "--judge",
    "judges",
    callback=shared.read_words("judge", to.JUDGES),
    metavar="burrow,stale",
    help="Judge all groups. burrow: by Burrow's rules, with the verdicts that Burrow sends. stale: an alert for each "
    "partition whose committed offset does not move while there are messages to read.",
)
@click.option(
    "--to",
    "receivers",
    callback=to.read_receivers,
    metavar="RECEIVER,...",
    help="Where the judges send. Verdicts of burrow: karrot=URL (its token is in KARROT_BURROW_TOKEN), kafka=TOPIC "
    "(as the kafka reporter, in the cluster of --bootstrap-servers), tables (events and partitions), cloudwatch. "
    "Alerts of stale: webhook=URL, or webhook with the URL in KARROT_STALE_WEBHOOK. Both: stdout, which is the default "
    "of a judge without a receiver.",
)
@click.option(
    "--rules",
    metavar="RULE=VALUE,...",
    callback=lambda *given: shared.read_rules(*given)[0],
    help="Burrow's rules: intervals, allowed_lag, min_distance, minimum_complete.  [default: Burrow's defaults]",
)
@click.option(
    "--threshold",
    type=click.Choice([*_THRESHOLDS]),
    default="OK",
    callback=lambda _context, _option, word: _THRESHOLDS[word],
    help="Lowest status of a verdict that is sent.",
)
@click.option(
    "--partitions",
    type=click.Choice(["all", "bad"]),
    default="all",
    help="Which partitions a verdict lists. Burrow lists the bad ones, which are worse than OK.",
)
@pattern_option("--group-allowlist", help="Judge only groups whose names match.")
@pattern_option("--group-denylist", help="Do not judge groups whose names match.")
@click.option(
    "--send-interval", callback=_span, help="Send a group's verdict at most this often.  [default: each time]"
)
@click.option("--expire-group", default="7d", callback=_span, help="Forget a group this long after its last commit.")
@config_option
@click.option(
    "--stale-for",
    "length",
    default="2m",
    callback=read_span(3_660 * 86_400),
    help="A partition is stale if its committed offset did not move for this time.",
)
@click.option(
    "--look-back",
    default="1d",
    callback=_span,
    help="How far back the first run reads the tables, rounded up to whole days.",
)
@click.pass_context
def offsets(context: click.Context, /, **asked: Any) -> None:
    """Write the records of __consumer_offsets to the tables "commits", "members", "ends" and "quarantine".

    With --judge, the command also judges every consumer group in each batch. It needs no Burrow and no ZooKeeper. A
    restart continues with the state in the checkpoint. After a crash, verdicts and alerts can be sent twice, with the
    same ids. If Karrot, the topic or the webhook does not answer, the batches go on. Verdicts and alerts wait in the
    checkpoint, and a later batch sends them. CloudWatch gets the newest verdicts later.

    With --source kafka, the command needs Spark's Kafka connector, which PySpark does not contain. Add the connector
    with the option --conf spark.jars.packages. With --source parquet, the command reads Parquet files with the columns
    key, value, topic, partition, offset and timestamp, and cannot judge.

    The command counts every record. You can run it again at any time, even after a crash. After a crash, the JSON topic
    can contain some records twice. Only one command at a time can write the rows of a cluster to the same tables, and
    with --to tables, no other command can write events to them.

    The exit code is 1 if a batch failed, if Karrot refuses the token, if another command writes these rows or, with
    --once, if verdicts or alerts wait. It is 2 if Spark cannot run here, if the connector is missing or if there is
    nothing to read.
    """
    judges, follow = asked["judges"], asked["follow"]
    asked["follow"] = bool(judges) if follow is None else follow
    for judge, (_, of_judge) in _JUDGES.items():
        if judge not in judges and (wrong := shared.given(context, of_judge)):
            raise Refused(f"{wrong[0]} needs --judge {judge}")
    reached, unsent = _reached(asked), dict[str, str]()
    make_judges = valid(partial(to.judges_of, asked, unsent))
    if reached is not None:
        reached.kafka.partitions([])  # without an answer, Spark would retry for minutes
    is_printed = any(to.prints(judge, asked["receivers"]) for judge in judges)
    with shared.started("offsets", asked) as (spark, unleased), ExitStack() as ending:
        from karrot.pipeline.store.write_lease import EVENTS, offsets_lease, writing

        stop, tables = threading.Event(), unleased
        if asked["follow"]:
            end_on_signals(stop)
        command = f"karrot pipeline offsets --cluster {asked['cluster']}"
        for lease in (offsets_lease(asked["cluster"]), *([EVENTS] if to.TABLES in asked["receivers"] else [])):
            tables = ending.enter_context(writing(spark, tables, lease, command, wait=asked["wait"], stop=stop))
        is_told = asked["follow"] and not asked["as_json"]
        tell = partial(click.echo, err=is_printed) if is_told else lambda _summary: None
        job = _Job(asked, spark, tables, stop, tell)
        total = job.from_files() if reached is None else job.from_kafka(reached, make_judges)
    click.echo(json.dumps(total.as_dict()) if asked["as_json"] else str(total), err=is_printed)
    if unsent and not asked["follow"]:
        raise NotDone("; ".join(unsent.values()))


def _reached(asked: Mapping[str, Any]) -> shared.Reached | None:
    """Return how to reach Kafka; ``None`` for a source of files. Raises Refused."""
    to.require_judges(asked["judges"], asked["receivers"])
    is_kafka = asked["source"] == shared.KAFKA
    reached = shared.kafka_of(asked, "karrot-offsets") if is_kafka else None
    of_files = {"--input": asked["directory_in"], "--ends-input": asked["ends_input"]}
    of_kafka = {"--json-topic": asked["json_topic"], "--judge": asked["judges"]}
    for option, given in (of_files if is_kafka else of_kafka).items():
        if given:
            raise Refused(f"{option} needs --source {'parquet' if is_kafka else shared.KAFKA}")
    if not is_kafka and asked["directory_in"] is None:
        raise Refused("--source parquet needs --input")
    return reached


@dataclass(frozen=True)
class _Job:
    """The job in its Spark session, with the lease of the tables."""

    asked: Mapping[str, Any]
    spark: "SparkSession"
    tables: "Tables"
    stop: threading.Event
    tell: Callable[[object], object]

    @property
    def checkpoint(self) -> str:
        from karrot.pipeline.store.hadoop_filesystem import place_for

        if given := self.asked["checkpoint"]:
            return place_for(self.spark, given)
        return default_checkpoint(self.tables, self.asked["cluster"], self.asked["judges"])

    def from_kafka(self, reached: shared.Reached, make_judges: "to.MakeJudges") -> "OffsetsSummary":
        from karrot.clock import SystemClock
        from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
        from karrot.pipeline.stream.metrics_and_health_server import MetricValues
        from karrot.pipeline.stream.streaming_queries import repeated, run_queries

        asked, judges, follow, stop = self.asked, self.asked["judges"], self.asked["follow"], self.stop
        metrics = EvaluateMetrics(asked["cluster"], SystemClock(), asked["every"])
        ends_every = asked["ends_every"] or timedelta(seconds=10 if judges else 30)
        tell = partial(_tell, metrics, self.tell)
        work = OffsetsFromKafka(asked["cluster"], reached, ends_every, asked["json_topic"], tell)
        polls = work.polls(self.spark, self.tables, stop)
        job = work.job(self.spark, self.tables, polls, self.checkpoint, most=_MOST_RECORDS if follow else 0)
        job.judges = make_judges(self.spark, self.tables, self.checkpoint, metrics, stop)
        served = metrics if to.BURROW in judges else MetricValues(())
        with (
            shared.served(asked["metrics_port"], served, metrics.problem),
            repeated(polls.if_due, stop) if follow else nullcontext(),
        ):
            run_queries([valid(partial(job.start, asked["every"] if follow else None))], stop=stop, follow=follow)
        return job.total

    def from_files(self) -> "OffsetsSummary":
        from karrot.pipeline.offsets.job import LandOffsets
        from karrot.pipeline.offsets.log_ends import LandEnds
        from karrot.pipeline.stream.record_sources import RecordsFromParquet
        from karrot.pipeline.stream.streaming_queries import run_queries

        asked, own = self.asked, (self.asked["cluster"], self.tables, self.checkpoint)
        job = LandOffsets(self.spark, RecordsFromParquet(asked["directory_in"]), *own, tell=self.tell)
        ends = LandEnds(self.spark, asked["ends_input"] or "", *own[:2], f"{self.checkpoint}-ends")
        every = asked["every"] if asked["follow"] else None
        queries = [job.start(every), *([ends.start(every)] if asked["ends_input"] else [])]
        run_queries(queries, stop=self.stop, follow=asked["follow"])
        return replace(job.total, looks=ends.total.written, bad_looks=ends.total.left_out)


_MOST_RECORDS: Final = 10_000_000
"""The maximum number of records in a batch of a long-running job: 160,000 commits per second for a minute."""


def default_checkpoint(tables: "Tables", cluster: str, judges: Sequence[str]) -> str:
    """Return a folder of its own for each set of judges, because a new judge has not seen the batches of the others."""
    return tables.checkpoint(f"{'+'.join(['kafka', *judges])}-{quote(cluster, safe='')}")


@dataclass(frozen=True)
class OffsetsFromKafka:
    """Reads records and log end offsets from Kafka, for ``karrot pipeline offsets`` and ``karrot pipeline run``."""

    cluster: str
    reached: shared.Reached
    ends_every: timedelta
    json_topic: str | None
    tell: Callable[[Any], object] = lambda _summary: None

    def polls(self, spark: "SparkSession", tables: "Tables", stop: threading.Event) -> "LogEndPolls":
        from karrot.clock import SystemClock
        from karrot.pipeline.offsets.log_ends import LogEndPolls, topics_of_late

        topics = frozenset(topics_of_late(spark, tables, self.cluster))
        return LogEndPolls(self.reached.kafka, self.ends_every, SystemClock(), self.tell, topics, stop=stop)

    def job(
        self, spark: "SparkSession", tables: "Tables", polls: "LogEndPolls", checkpoint: str = "", most: int = 0
    ) -> "LandOffsets":
        """Return the job that writes the records and the log ends of ``polls``.

        Raises ClusterError if Kafka does not answer, because Spark would retry for minutes.
        """
        from karrot.pipeline.offsets.job import JsonTopic, LandOffsets
        from karrot.pipeline.stream.record_sources import BATCH_RECORDS, RecordsFromKafka

        topic = self.json_topic
        found = self.reached.kafka.partitions([topic] if topic else [])
        if topic and topic not in found:  # Spark would wait a minute for the topic
            raise Refused(f"--json-topic {topic}: the topic does not exist; create it (kafka-topics --create)")
        source = RecordsFromKafka(*self.reached, most=most or BATCH_RECORDS)
        json_topic = JsonTopic(self.reached.brokers, topic) if topic else None
        checkpoint = checkpoint or default_checkpoint(tables, self.cluster, [])
        return LandOffsets(spark, source, self.cluster, tables, checkpoint, json_topic, self.tell, polls)


def _tell(
    metrics: "EvaluateMetrics", tell: Callable[[object], object], summary: "OffsetsSummary | PollSummary"
) -> None:
    from karrot.pipeline.offsets.job import OffsetsSummary

    if isinstance(summary, OffsetsSummary):
        metrics.landed(summary.quarantined)
        tell(summary)
    elif summary.problem:
        metrics.log_ends_failed()
        click.echo(f"karrot: {summary}", err=True)
