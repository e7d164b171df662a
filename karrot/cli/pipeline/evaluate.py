"""``karrot pipeline evaluate``: judges every consumer group by Burrow's rules, from ``__consumer_offsets``."""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from click.core import ParameterSource

from karrot.cli.errors import NotDone, Refused, end_on_signals, valid
from karrot.cli.options import follow_option, read_span, value_of
from karrot.cli.pipeline.job_errors import errors_as_sentences, why_it_failed
from karrot.cli.pipeline.metrics_option import metrics_port_option, served
from karrot.cli.pipeline.source_options import KAFKA, kafka_of, kafka_options
from karrot.cli.pipeline.spark_options import checkpoint_option, read_spark_place, spark_options, started
from karrot.cli.table import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from karrot.pipeline.evaluate.evaluate_metrics import EvaluateMetrics
    from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
    from karrot.pipeline.evaluate.job import EvaluatedBatch, VerdictDelivery
    from karrot.pipeline.evaluate.recent_log_ends import LogEndSource
    from karrot.pipeline.offsets.log_ends import PollSummary
    from karrot.pipeline.stream.record_sources import RecordSource
    from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

_PARQUET = "parquet"
_THRESHOLDS = {"OK": 1, "WARN": 2, "ERR": 3}
_span = read_span(366 * 86_400)


def _read_rules(_context: click.Context, _option: click.Parameter, text: str | None) -> "RuleSet":
    from karrot.pipeline.window_arrays.rule_set_parser import read_rule_sets

    [rules] = valid(partial(read_rule_sets, [text] if text else []))
    return rules


def _read_pattern(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    from karrot.settings import types

    return None if text is None else value_of(types.pattern, option.opts[0], text).pattern


@click.command(short_help="Judge every consumer group by Burrow's rules, from __consumer_offsets.")
@click.option(
    "--source",
    type=click.Choice([KAFKA, _PARQUET]),
    default=KAFKA,
    show_default=True,
    help="Where to read the records of __consumer_offsets.",
)
@click.option("--cluster", required=True, metavar="NAME", help="Name of the cluster in the verdicts.")
@spark_options
@kafka_options
@click.option(
    "--input", "directory_in", callback=read_spark_place, metavar="DIR", help="With --source parquet: the records."
)
@click.option(
    "--ends-input", callback=read_spark_place, metavar="DIR", help="With --source parquet: the log end offsets."
)
@click.option(
    "--to",
    "target",
    default="-",
    show_default=True,
    metavar="karrot=URL",
    help="Post the verdicts to this Karrot, such as karrot=http://karrot:5000. - prints them.",
)
@follow_option("Continue until Ctrl-C, or read the existing records once, and end.", default=True)
@click.option("--every", default="60s", show_default=True, callback=_span, help="How often to judge all groups.")
@click.option(
    "--ends-every", default="10s", show_default=True, callback=_span, help="How often to ask Kafka for log end offsets."
)
@click.option(
    "--rules",
    metavar="RULE=VALUE,...",
    callback=_read_rules,
    help="Burrow's rules: intervals, allowed_lag, min_distance, minimum_complete.  [default: Burrow's defaults]",
)
@click.option(
    "--threshold",
    type=click.Choice([*_THRESHOLDS]),
    default="OK",
    show_default=True,
    callback=lambda _context, _option, word: _THRESHOLDS[word],
    help="Lowest status that is sent.",
)
@click.option(
    "--partitions",
    type=click.Choice(["all", "bad"]),
    default="all",
    show_default=True,
    help="Which partitions a verdict lists. Burrow lists the bad ones, which are worse than OK.",
)
@click.option("--group-allowlist", metavar="REGEX", callback=_read_pattern, help="Judge only groups whose names match.")
@click.option(
    "--group-denylist", metavar="REGEX", callback=_read_pattern, help="Do not judge groups whose names match."
)
@click.option(
    "--burrow-toml",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Take the rules from Burrow's settings file. Options override it. Settings that are not taken are printed.",
)
@click.option("--burrow-notifier", metavar="NAME", help="With --burrow-toml: the notifier, if there are several.")
@click.option("--send-interval", callback=_span, help="Send a group at most this often.  [default: each time]")
@click.option(
    "--expire-group",
    default="7d",
    show_default=True,
    callback=_span,
    help="Forget a group this long after its last commit.",
)
@checkpoint_option(help="Folder of the rings and incidents.  [default: a folder in the tables]")
@metrics_port_option
def evaluate(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Judge every consumer group by Burrow's rules, and send the verdicts as Burrow does.

    The command reads the records of __consumer_offsets and the log end offsets. It needs no Burrow and no ZooKeeper. It
    runs until Ctrl-C. A restart continues with the rings and incidents of the checkpoint. After a crash, verdicts can
    be sent twice, with the same incident ids.

    With --to, each verdict is posted to Karrot. The token comes from KARROT_BURROW_TOKEN.
    """
    asked |= _of_burrow(asked)
    rules, deliver = _rules(asked), valid(partial(_delivery, asked))
    opened = _opened(asked)
    with started("evaluate", master, conf) as spark, errors_as_sentences(asked):
        from pyspark.errors import StreamingQueryException

        from karrot.clock import SystemClock
        from karrot.pipeline.evaluate.evaluate_metrics import EvaluateMetrics
        from karrot.pipeline.evaluate.job import Evaluate
        from karrot.pipeline.store.filesystem import place_for
        from karrot.pipeline.store.table_files import Tables
        from karrot.pipeline.stream.query_runner import run_queries

        stop, tables = threading.Event(), Tables.at(spark, directory)
        own = tables.checkpoint(f"evaluate-{quote(asked['cluster'], safe='')}")
        checkpoint = place_for(spark, asked["checkpoint"]) if asked["checkpoint"] else own
        metrics = EvaluateMetrics(started_s=SystemClock().wall_ms() / 1000, interval_s=asked["every"].total_seconds())
        source, log_ends, now_ms = opened(spark, checkpoint, metrics)
        seen = partial(_seen, metrics, checkpoint)
        job = Evaluate(spark, source, log_ends, asked["cluster"], checkpoint, rules, deliver, now_ms, seen=seen)
        if asked["follow"]:
            end_on_signals(stop)
        with served(asked["metrics_port"], metrics, lambda: None):
            try:
                query = valid(partial(job.start, asked["every"] if asked["follow"] else None))
                run_queries([query], stop=stop, follow=asked["follow"])
            except StreamingQueryException as error:
                raise NotDone(why_it_failed(str(error))) from error


Opened = tuple["RecordSource", "LogEndSource", "Callable[[DataFrame, int], int]"]


def _opened(asked: Mapping[str, Any]) -> "Callable[[SparkSession, str, EvaluateMetrics], Opened]":
    """Read the options of the source. Raises Refused."""
    if asked["source"] == KAFKA:
        reached = kafka_of(asked, "karrot-evaluate")

        def from_kafka(spark: "SparkSession", checkpoint: str, metrics: "EvaluateMetrics") -> Opened:
            from karrot.pipeline.evaluate.job import batch_time_ms
            from karrot.pipeline.evaluate.recent_log_ends import LogEndsFromKafka
            from karrot.pipeline.stream.query_runner import checkpoint_reader
            from karrot.pipeline.stream.record_sources import RecordsFromKafka

            read = checkpoint_reader(spark, checkpoint)

            def failed(summary: "PollSummary") -> None:
                metrics.log_ends_failed()
                click.echo(summary, err=True)

            log_ends = LogEndsFromKafka(reached.kafka, asked["ends_every"], failed)
            return RecordsFromKafka(*reached), log_ends, lambda _rows, batch: batch_time_ms(read, batch)

        return from_kafka
    if asked["directory_in"] is None or asked["ends_input"] is None:
        raise Refused("--source parquet needs --input and --ends-input")

    def from_files(spark: "SparkSession", _checkpoint: str, _metrics: "EvaluateMetrics") -> Opened:
        from karrot.pipeline.evaluate.job import newest_record_ms
        from karrot.pipeline.evaluate.recent_log_ends import LogEndsFromParquet
        from karrot.pipeline.stream.record_sources import RecordsFromParquet

        log_ends = LogEndsFromParquet(spark, asked["ends_input"])
        return RecordsFromParquet(asked["directory_in"]), log_ends, lambda rows, _batch: newest_record_ms(rows)

    return from_files


def _seen(metrics: "EvaluateMetrics", checkpoint: str, batch: "EvaluatedBatch") -> None:
    """Count a batch, and print why Karrot refused verdicts. A group can have any name, so its name is escaped."""
    metrics.judged(batch)
    if refused := batch.delivery.refused:
        codes = ", ".join(f"{code} {count}" for code, count in sorted(Counter(each.code for each in refused).items()))
        one = shown(refused[0].consumer, getattr(sys.stderr, "encoding", None) or "utf-8")
        said = f"Karrot refused {len(refused)} verdicts ({codes}), one of {one}; they are in {checkpoint}/refused"
        click.echo(f"karrot: {said}", err=True)


def _of_burrow(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The values that Burrow's settings file gives to the options that the command lacks. Raises Refused."""
    if asked["burrow_toml"] is None:
        return {}
    from karrot.pipeline.evaluate.burrow_settings import read_burrow_settings

    try:
        text = asked["burrow_toml"].read_text(encoding="utf-8")
        found = read_burrow_settings(text, asked["cluster"], asked["burrow_notifier"])
    except (OSError, ValueError) as error:
        raise Refused(f"--burrow-toml {asked['burrow_toml']}: {error}") from error
    if found.left_out:
        click.echo(f"karrot: not taken from {asked['burrow_toml']}: {', '.join(found.left_out)}", err=True)
    rules, notifier = found.asked, found.asked.notifier
    values = {
        "every": timedelta(seconds=found.interval),
        "ends_every": timedelta(seconds=found.offset_refresh),
        "rules": rules.rules,
        "threshold": notifier.threshold,
        "send_interval": timedelta(seconds=notifier.send_interval or 0),
        "send_close": notifier.send_close,
        "send_once": notifier.send_once,
        "expire_group": timedelta(seconds=rules.expire_group),
        "read": rules.read,
        "sent": rules.sent,
    }
    source_of = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source_of(name) in (None, ParameterSource.DEFAULT)}


def _rules(asked: Mapping[str, Any]) -> "EvaluateRules":
    from karrot.burrow.notifier import NotifierSettings
    from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules, NameFilter

    own = NameFilter(*(() if each is None else (each,) for each in (asked["group_allowlist"], asked["group_denylist"])))
    return EvaluateRules(
        asked["rules"],
        NotifierSettings(
            asked["threshold"],
            send_interval=asked["send_interval"].total_seconds() if asked["send_interval"] else 0,
            send_close=asked.get("send_close", True),
            send_once=asked.get("send_once", False),
        ),
        int(asked["expire_group"].total_seconds()),
        lists_all=asked["partitions"] == "all",
        read=asked.get("read", NameFilter()).joined(own),
        sent=asked.get("sent", NameFilter()),
    )


def _delivery(asked: Mapping[str, Any]) -> "Callable[[Any], VerdictDelivery]":
    from karrot.pipeline.evaluate.notification_sinks import ToKarrot, to_stream

    if asked["target"] == "-":
        return to_stream(sys.stdout)
    url, token = asked["target"].removeprefix("karrot="), os.environ.get("KARROT_BURROW_TOKEN")
    return ToKarrot.at(url, token, lists_all=asked["partitions"] == "all")
