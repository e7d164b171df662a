"""``karrot pipeline evaluate``: judges every consumer group by Burrow's rules, from ``__consumer_offsets``."""

import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import end_on_signals, valid
from karrot.cli.options import follow_option, pattern_option, read_span
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand
from karrot.cli.print_table import shown

if TYPE_CHECKING:
    from karrot.pipeline.evaluate.bucket_state import EvaluateRules
    from karrot.pipeline.evaluate.job import EvaluatedBatch
    from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
    from karrot.pipeline.evaluate.verdict_destinations import Deliver
    from karrot.pipeline.offsets.log_ends import PollSummary

_TABLES = "tables"
_THRESHOLDS = {"OK": 1, "WARN": 2, "ERR": 3}
_span = read_span(366 * 86_400)


@click.command(cls=JobCommand, short_help="Judge every consumer group by Burrow's rules, from __consumer_offsets.")
@click.option("--cluster", required=True, metavar="NAME", help="Name of the cluster in the verdicts.")
@shared.spark_options
@shared.kafka_options
@click.option(
    "--to",
    "target",
    default="-",
    metavar="karrot=URL,kafka=TOPIC,tables",
    help="Receivers of the verdicts, separated by commas: a Karrot (karrot=http://karrot:5000), a Kafka topic as the "
    "kafka reporter writes it, or the tables events and partitions. - prints them.",
)
@follow_option("Continue until Ctrl-C, or read the existing records once, and end.", default=True)
@click.option("--every", default="60s", callback=_span, help="How often to judge all groups.")
@click.option("--ends-every", default="10s", callback=_span, help="How often to ask Kafka for log end offsets.")
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
    help="Lowest status that is sent.",
)
@click.option(
    "--partitions",
    type=click.Choice(["all", "bad"]),
    default="all",
    help="Which partitions a verdict lists. Burrow lists the bad ones, which are worse than OK.",
)
@pattern_option("--group-allowlist", help="Judge only groups whose names match.")
@pattern_option("--group-denylist", help="Do not judge groups whose names match.")
@click.option("--send-interval", callback=_span, help="Send a group at most this often.  [default: each time]")
@click.option("--expire-group", default="7d", callback=_span, help="Forget a group this long after its last commit.")
@shared.checkpoint_option(help="Folder of the rings and incidents.  [default: a folder in the tables]")
@shared.wait_option
@shared.metrics_port_option
def evaluate(**asked: Any) -> None:
    """Judge every consumer group by Burrow's rules, and send the verdicts as Burrow does.

    The command reads the records of __consumer_offsets and the log end offsets. It needs no Burrow and no ZooKeeper. It
    runs until Ctrl-C. A restart continues with the rings and incidents of the checkpoint. After a crash, verdicts can
    be sent twice, with the same incident ids.

    Each receiver in --to gets every verdict. The token for Karrot comes from KARROT_BURROW_TOKEN. With kafka=TOPIC, the
    topic is in the cluster of --bootstrap-servers. With tables, no other command can write events to the same tables.
    """
    rules, receivers = _rules(asked), valid(partial(_receivers, asked))
    reached = shared.kafka_of(asked, "karrot-evaluate")
    with shared.started("evaluate", asked) as (spark, unleased), ExitStack() as ending:
        from karrot.clock import SystemClock
        from karrot.pipeline.evaluate import job
        from karrot.pipeline.evaluate.job import to_tables
        from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
        from karrot.pipeline.evaluate.recent_log_ends import LogEndsFromKafka
        from karrot.pipeline.store.write_lease import EVENTS, evaluate_lease, writing
        from karrot.pipeline.stream.record_sources import RecordsFromKafka
        from karrot.pipeline.stream.streaming_queries import checkpoint_reader, repeated, run_queries

        clock, stop, cluster = SystemClock(), threading.Event(), asked["cluster"]
        if asked["follow"]:
            end_on_signals(stop)
        command, tables = f"karrot pipeline evaluate --cluster {cluster}", unleased
        for name in (evaluate_lease(cluster), *([EVENTS] if _TABLES in receivers else [])):
            tables = ending.enter_context(writing(spark, tables, name, command, wait=asked["wait"], stop=stop))
        checkpoint = shared.checkpoint_in(spark, asked, tables.checkpoint(evaluate_lease(cluster)))
        metrics = EvaluateMetrics(cluster, clock, asked["every"])

        source = RecordsFromKafka(*reached, most=job.MOST_RECORDS)
        log_ends = LogEndsFromKafka(reached.kafka, asked["ends_every"], partial(_not_read, metrics), clock)
        ending.enter_context(repeated(log_ends.ask_if_due, stop))
        now_ms = partial(job.batch_time_ms, checkpoint_reader(spark, checkpoint))
        deliver = [each or to_tables(spark, tables, clock) for each in receivers.values()]
        seen = partial(_seen, metrics, checkpoint)
        asks = (source, log_ends, cluster, tables, checkpoint, rules, deliver, now_ms)
        evaluation = job.Evaluate(spark, *asks, seen=seen)
        with shared.served(asked["metrics_port"], metrics, metrics.problem):
            query = valid(partial(evaluation.start, asked["every"] if asked["follow"] else None))
            run_queries([query], stop=stop, follow=asked["follow"])


def _not_read(metrics: "EvaluateMetrics", summary: "PollSummary") -> None:
    metrics.log_ends_failed()
    click.echo(summary, err=True)


def _seen(metrics: "EvaluateMetrics", checkpoint: str, batch: "EvaluatedBatch") -> None:
    """Count a batch in the metrics, and print why receivers refused verdicts. Names of groups are escaped."""
    metrics.took(batch)
    for receiver in sorted({each.receiver for each in batch.refused}):
        refused = [each for each in batch.refused if each.receiver == receiver]
        codes = ", ".join(f"{code} {count}" for code, count in sorted(Counter(each.code for each in refused).items()))
        one = shown(refused[0].consumer, getattr(sys.stderr, "encoding", None) or "utf-8")
        said = f"{receiver} refused {len(refused)} verdicts ({codes}), one of {one}; they are in {checkpoint}/refused"
        click.echo(f"karrot: {said}", err=True)
    if batch.unreadable:
        click.echo(f"karrot: {batch.unreadable} records could not be read; they are in the table quarantine", err=True)


def _rules(asked: Mapping[str, Any]) -> "EvaluateRules":
    from karrot.burrow.notification_rules import NameFilter, NotifierSettings
    from karrot.pipeline.evaluate.bucket_state import EvaluateRules

    return EvaluateRules(
        asked["rules"],
        NotifierSettings(
            asked["threshold"],
            send_interval=asked["send_interval"].total_seconds() if asked["send_interval"] else 0,
            send_close=True,
        ),
        int(asked["expire_group"].total_seconds()),
        lists_all=asked["partitions"] == "all",
        groups=NameFilter.of(asked["group_allowlist"], asked["group_denylist"]),
    )


def _receivers(asked: Mapping[str, Any]) -> "dict[str, Deliver | None]":
    """Read --to. Return each receiver by its name; ``None`` stands for the tables. Raises Refused or ValueError."""
    from karrot.pipeline.evaluate.verdict_destinations import to_karrot, to_stream

    found: dict[str, Deliver | None] = {}
    for part in asked["target"].split(","):
        name, _, place = part.strip().partition("=")
        if name in found:
            raise ValueError(f"--to has {name} twice")
        match name, bool(place):
            case "-", False:
                found[name] = to_stream(sys.stdout)
            case "karrot", True:
                token = os.environ.get("KARROT_BURROW_TOKEN")
                found[name] = to_karrot(place, token, lists_all=asked["partitions"] == "all")
            case "kafka", True:
                found[name] = _topic(place, asked)
            case "tables", False:
                found[name] = None
            case _:
                said = f"--to is {asked['target']!r}: it must be -, or some of karrot=URL, kafka=TOPIC and tables"
                raise ValueError(said)
    return found


def _topic(topic: str, asked: Mapping[str, Any]) -> "Deliver":
    """Return the receiver for a topic, which connects only later. Raises Refused or ValueError."""
    from karrot.kafka import client_properties
    from karrot.pipeline.evaluate.verdict_destinations import to_topic
    from karrot.reporters.kafka.reporter import TopicWriter
    from karrot.settings import types
    from karrot.settings.options import Kafka

    topic = types.checked(types.topic, "--to kafka=", topic)
    options = Kafka(asked["bootstrap_servers"], topic, asked["command_config"])
    client_properties.read(options.properties)

    def open_topic() -> TopicWriter:
        from karrot.reporters.kafka.producer import KafkaTopic

        return KafkaTopic(options)

    return to_topic(open_topic)
