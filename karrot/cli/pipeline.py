"""``karrot pipeline``: the Spark jobs."""

import json
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.common import Refused, end_on_signals
from karrot.cli.connecting import told
from karrot.cli.options import put_on, value_of
from karrot.cli.roads import road_of, road_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.jobs.ingest import Summary

__all__ = ["COMMANDS", "pipeline", "read_trigger", "session_options", "spark_options", "started"]

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_HALT_S: Final = 5


@click.group()
def pipeline() -> None:
    """Make tables of the archive, on Spark.

    Needs the extra "spark" and Java 17 or newer. On a cluster, start the same command by spark-submit.
    """


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise click.BadParameter(f"{key!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}


_TABLES = click.option(
    "--tables", "directory", required=True, help="Where the tables are: a directory or a URL (s3a://…)."
)
_SESSION_OPTIONS = (
    click.option("--master", help="Spark's master; local[*], or that of spark-submit."),
    click.option("--conf", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Of Spark; can be given again."),
)


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every job has: ``directory``, ``master`` and ``conf``."""
    return _TABLES(session_options(command))


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that a session is made of: ``master`` and ``conf``."""
    return put_on(command, *_SESSION_OPTIONS)


def started(job: str, master: str | None, conf: Mapping[str, str]) -> "SparkSession":
    """A session for a job; what keeps Spark from running becomes a sentence."""
    from karrot.pipeline.spark import SparkUnavailable, session

    try:
        spark = session(master, conf, name=f"karrot pipeline {job}")
    except SparkUnavailable as error:
        raise Refused(str(error)) from error
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its errors are raised as well
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, partial(_halt, spark))
    return spark


def _halt(spark: "SparkSession", number: int, _frame: object) -> None:
    """Ends the process, since a job that is killed can be run again.

    An error in the midst of a call to the JVM, as Spark's own handler raises it, would leave no connection by which to
    end in order.
    """
    # By a thread, which has a connection of its own.
    halting = threading.Thread(target=_stop, args=(spark,), daemon=True)
    halting.start()
    halting.join(_HALT_S)
    click.echo("karrot: interrupted", err=True)
    os._exit(128 + number)


def _stop(spark: "SparkSession") -> None:
    spark.sparkContext.setLogLevel("OFF")  # else it tells the stack of each job that ends here
    spark.sparkContext.cancelAllJobs()
    for query in spark.streams.active:
        query.stop()
    spark.stop()


def read_trigger(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """How often, as Spark takes it. Raises Refused."""
    from karrot.values import Kind

    kind = Kind(_read_span, "a span of time like 10 seconds, 1 minute, 30s or 500ms")
    return None if text is None else value_of(kind, "--trigger", text)


def _read_span(text: str) -> str:
    if short := re.fullmatch(r"([0-9]{1,9}) ?(ms|s|m|h|d)", text.strip()):
        return f"{short[1]} {_UNITS[short[2]]}"
    if not re.fullmatch(r"(?: *[0-9]{1,9} +(?:millisecond|second|minute|hour|day)s?)+", text.strip(), re.IGNORECASE):
        raise ValueError(text)
    return text.strip()


@pipeline.command()
@road_options
@spark_options
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "--trigger", default="30 seconds", show_default=True, callback=read_trigger, help="How often to look for it."
)
@click.option("--checkpoint", help="What was taken so far; below the tables if not given.")
@click.option("--json", "as_json", is_flag=True, help="The sum as one line of JSON.")
def ingest(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Take new segments of the archive into the tables events, partitions and quarantine; or records of a topic.

    Every line is accounted for: lines read = events + quarantined + duplicates. Run it again at any time, after a
    crash too; but never twice at a time on the same tables.

    Exit code 1 if a batch failed or Kafka does not answer, 2 if Spark cannot run here or there is nothing to read.
    """
    road = road_of(asked)
    spark = started("ingest", master, conf)
    from karrot.pipeline.jobs.ingest import Ingest
    from karrot.pipeline.tables import Tables

    follow, as_json = asked["follow"], asked["as_json"]
    job = Ingest(
        spark,
        road(),
        Tables(directory),
        checkpoint=asked["checkpoint"] or "",
        tell=_shown if follow and not as_json else lambda _summary: None,
    )
    stop = threading.Event()
    if follow:
        end_on_signals(stop)
    try:
        with told(asked):
            total = job.run(asked["trigger"] if follow else None, stop)
    finally:
        spark.stop()
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))


def _shown(summary: "Summary") -> None:
    click.echo(str(summary))


COMMANDS = (pipeline,)
