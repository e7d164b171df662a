"""Defines the options that the Spark jobs share, starts the Spark session, and stops it on a signal."""

import logging
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from karrot.cli.errors import NotNow, Refused, valid
from karrot.cli.options import brokers_option, option_set, read_span, reads
from karrot.cli.pipeline.job_errors import JobCommand

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from pyspark.sql import SparkSession

    from karrot.pipeline.ingest.event_sources import EventSource
    from karrot.pipeline.store.table_files import Tables
    from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
    from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
    from karrot.watch.kafka_admin import KafkaCluster

_HALT_S: Final = 5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class CommandInSections(JobCommand):
    """A command whose help lists some options in sections. ``sections`` has the names of these options by title."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles = {name: title for title, names in self.sections.items() for name in names}
        rows = defaultdict[str, list[tuple[str, str]]](list)
        for option in self.get_params(ctx):
            rows[titles.get(str(option.name), "Options")].append(option.get_help_record(ctx) or ("", ""))
        for title, of_section in rows.items():
            with formatter.section(title):
                formatter.write_dl(of_section)


def given(context: click.Context, names: Sequence[str]) -> list[str]:
    """Return those of the named options that the user wrote, as ``--option``."""
    written = {each.name: each.opts[0] for each in context.command.params}
    return [written[each] for each in names if context.get_parameter_source(each) is ParameterSource.COMMANDLINE]


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, value in pairs:
        if not (key and equals):
            raise click.BadParameter(f"{key!r} is not KEY=VALUE")
        for path in value.split(",") if key in ("spark.jars", "spark.archives", "spark.files") else ():
            # Spark starts without a missing file, and the job fails later.
            if "*" not in path and not urlsplit(path).scheme and not Path(path.partition("#")[0]).exists():
                raise click.BadParameter(f"{path} does not exist")
    return {key: value for key, _, value in pairs}


def read_words(kind: str, known: Collection[str]) -> Callable[[click.Context, click.Parameter, Any], list[str]]:
    """Return a callback that reads words, with commas between them. It returns them in the order of ``known``."""

    def read(_context: click.Context, option: click.Parameter, given: str | tuple[str, ...] | None) -> list[str]:
        texts = given if isinstance(given, tuple) else [] if given is None else [given]
        named = [word.strip() for text in texts for word in text.split(",")]
        if unknown := [word for word in named if word not in known]:
            raise click.BadParameter(f"{unknown[0]!r} is no {kind}: write {', '.join(known)}", param=option)
        return [word for word in known if word in named]

    return read


read_spark_place = reads(lambda types: types.spark_place)
"""Reads a directory or URL. An empty string, as from an unset shell variable, is refused: it would mean ``/``."""


def read_rules(_context: click.Context, _option: click.Parameter, given: Any) -> "tuple[RuleSet, ...]":
    """Read one or more rule sets. Without this option, return one rule set with Burrow's defaults."""
    from karrot.pipeline.window_arrays.rule_set_parser import read_rule_sets

    return valid(partial(read_rule_sets, [given] if isinstance(given, str) else given or ()))


wait_option = click.option(
    "--wait",
    callback=read_span(7 * 86_400),
    metavar="DURATION",
    help="How long to wait if another command writes these tables.  [default: end at once]",
)

checkpoint_option = partial(click.option, "--checkpoint", callback=read_spark_place)

spark_options = option_set(
    click.option(
        "--tables",
        "directory",
        required=True,
        callback=read_spark_place,
        envvar="KARROT_TABLES_DIR",
        show_envvar=True,
        help="Directory or URL (s3://…) of the tables.",
    ),
    click.option("--master", help="Spark master, without spark-submit.  [default: local[*]]"),
    click.option(
        "--conf",
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="Spark setting. Repeatable. With spark-submit, only settings that begin with spark.sql.",
    ),
)
"""The options of every job."""


@contextmanager
def started(job: str, asked: Mapping[str, Any]) -> "Iterator[tuple[SparkSession, Tables]]":
    """Start Spark for a job, open its tables, and stop Spark after the job. Raises Refused if Spark cannot run."""
    from py4j.protocol import Py4JError

    from karrot.pipeline.spark_session import SettingTooLate, SparkUnavailable, session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs the errors that it raises
    before = _on_signals(_leave, _leave)
    try:
        spark = session(asked["master"], asked["conf"], name=f"karrot pipeline {job}")
    except (SparkUnavailable, SettingTooLate) as error:
        _on_signals(*before)
        raise Refused(str(error)) from error
    _on_signals(partial(_halt, spark), partial(_halt, spark))
    try:
        from karrot.pipeline.store.table_files import Tables

        yield spark, Tables.at(spark, asked["directory"])
    finally:
        with suppress(ConnectionError, Py4JError):  # a signal to the process group also ends the JVM
            spark.stop()
        _on_signals(*before)


def _on_signals(*handlers: Any) -> list[Any]:
    """Set the handlers of Ctrl-C and SIGTERM, if this is the main thread. Return the previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        return [*handlers]
    return [signal.signal(number, handler) for number, handler in zip(_SIGNALS, handlers, strict=True)]


def _leave(number: int, _frame: object) -> None:
    """End the process at once while Spark starts.

    An exception here would make pyspark remove the file into which the new JVM writes its port. The JVM would then fail
    to write the file, and would never end.
    """
    click.echo("karrot: interrupted", err=True)
    os._exit(128 + number)


def _halt(spark: "SparkSession", number: int, _frame: object) -> None:
    """Stop the job and end the process. The user can run the job again.

    Spark's own handler raises an error during a call to the JVM. This error leaves no connection to stop the job.
    """
    # A new thread has its own connection to the JVM.
    halting = threading.Thread(target=_stop, args=(spark,), daemon=True)
    halting.start()
    halting.join(_HALT_S)
    click.echo("karrot: interrupted", err=True)
    os._exit(128 + number)


def _stop(spark: "SparkSession") -> None:
    from karrot.pipeline.store.write_lease import release_all

    spark.sparkContext.setLogLevel("OFF")  # otherwise Spark logs a stack trace for each job that ends here
    spark.sparkContext.cancelAllJobs()
    for query in spark.streams.active:
        query.stop()
    release_all()
    spark.stop()


KAFKA = "kafka"
"""The value of ``--source`` for Kafka."""

kafka_options = option_set(
    brokers_option(help="Kafka brokers. Needed to read from Kafka."),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A properties file for the Java client, as Kafka's own tools take it (TLS, SASL, MSK IAM).",
    ),
    click.option(
        "--starting",
        default="earliest",
        metavar="earliest|latest|TIME",
        help="Where the first run begins. TIME is ISO 8601, in UTC if it has no time zone.",
    ),
)
"""The options for Kafka, which `kafka_of` reads."""

_ARCHIVE = "archive"

event_options = option_set(
    click.option(
        "--source",
        type=click.Choice([_ARCHIVE, KAFKA]),
        default=_ARCHIVE,
        help="Read events from the archive reporter's segments, or from the kafka reporter's topic.",
    ),
    click.option(
        "--archive", callback=read_spark_place, help="With --source archive: directory or URL (s3://…) of the archive."
    ),
    click.option(
        "--topic",
        default="karrot.events",
        callback=reads(lambda types: types.topic),
        help="With --source kafka: topic of the kafka reporter.",
    ),
)
"""The options for a source of events, which `event_source_of` reads with `kafka_options`."""


class Reached(NamedTuple):
    brokers: "KafkaConnection"
    kafka: "KafkaCluster"
    start: "StartingOffsets"


def kafka_of(asked: Mapping[str, Any], client_id: str) -> Reached:
    """Read the options for Kafka, but do not connect. Raises Refused."""
    from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
    from karrot.watch.cluster_interface import connect

    addresses, properties = asked["bootstrap_servers"], asked["command_config"]
    if addresses is None:
        raise Refused("Kafka needs --bootstrap-servers")
    return Reached(
        valid(partial(KafkaConnection.of, addresses, properties)),
        valid(partial(connect, addresses, properties, client_id=client_id)),
        valid(partial(StartingOffsets, asked["starting"])),
    )


def event_source_of(asked: Mapping[str, Any]) -> "Callable[[], EventSource]":
    """Return a function that opens the source of events after Spark started. Raises Refused for wrong options."""
    is_kafka, archive = asked["source"] == KAFKA, asked["archive"]
    if not is_kafka and archive is None:
        raise Refused("--source archive needs --archive. To read no events, choose other steps: --only derive,compact")
    reached = kafka_of(asked, "karrot-pipeline") if is_kafka else None

    def opened() -> "EventSource":
        from karrot.pipeline.ingest.event_sources import BATCH_EVENTS, EventsFromArchive, EventsFromTopic
        from karrot.pipeline.stream.record_sources import RecordsFromKafka

        if reached is None:
            return EventsFromArchive(archive)
        return EventsFromTopic(RecordsFromKafka(*reached, asked["topic"], BATCH_EVENTS))

    return opened


metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_535),
    metavar="PORT",
    help="Serve /metrics for Prometheus and /healthz for a probe on this port, on all addresses.",
)


@contextmanager
def served(port: int | None, metrics: "Collector", health: Callable[[], str | None]) -> Iterator[None]:
    """Serve the metrics on ``port``; ``None`` serves nothing. Raises NotNow if the port is in use."""
    from prometheus_client import CollectorRegistry

    from karrot.pipeline.stream.metrics_and_health_server import MetricsPort

    if port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server = MetricsPort(registry, port, health)
    except OSError as error:
        raise NotNow(f"--metrics-port {port}: {error.strerror}") from error
    with server:
        yield
