"""Defines the options of a Spark session, starts the session, and stops it on a signal."""

import logging
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.errors import Refused
from karrot.cli.options import option_set, read_span, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.store.table_files import Tables


_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_HALT_S: Final = 5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise click.BadParameter(f"{key!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}


def read_spark_place(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Read a place. Raises Refused.

    An unset shell variable gives an empty name, which would mean the root directory.
    """
    from karrot.settings import storage_place
    from karrot.settings.types import ValueKind

    kind = ValueKind(storage_place.read_spark_place, "a directory, s3://bucket/prefix or another URL of Hadoop")
    return None if text is None else value_of(kind, option.opts[0], text)


session_options = option_set(
    click.option("--master", help="Spark master, without spark-submit.  [default: local[*]]"),
    click.option(
        "--conf",
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="Spark setting. Repeatable. With spark-submit, only settings that begin with spark.sql.",
    ),
)


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
    session_options,
)
"""The options of every job."""


@contextmanager
def started(job: str, master: str | None, conf: Mapping[str, str]) -> Iterator["SparkSession"]:
    """Start a Spark session for a job, and stop it after the job. Raises Refused if Spark cannot run."""
    from karrot.pipeline.spark_session import SettingTooLate, SparkUnavailable, session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs the errors that it raises
    before = _on_signals(_leave, _leave)
    try:
        spark = session(master, conf, name=f"karrot pipeline {job}")
    except (SparkUnavailable, SettingTooLate) as error:
        _on_signals(*before)
        raise Refused(str(error)) from error
    _on_signals(partial(_halt, spark), partial(_halt, spark))
    try:
        yield spark
    finally:
        _stop_session(spark)


def _stop_session(spark: "SparkSession") -> None:
    """Stop Spark, if its JVM still runs. A signal to the process group also ends the JVM."""
    from py4j.protocol import Py4JError

    with suppress(ConnectionError, Py4JError):
        spark.stop()


def _on_signals(*handlers: Any) -> list[Any]:
    """Set the handlers of Ctrl-C and SIGTERM, only in the main thread. Return the previous handlers."""
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


def tables_in(spark: "SparkSession", directory: str) -> "Tables":
    """Open the tables. Raises Refused if the directory is missing: a misspelt name must not count as empty tables."""
    from karrot.pipeline.store.filesystem import exists
    from karrot.pipeline.store.table_files import Tables

    tables = Tables.at(spark, directory)
    if not exists(spark, tables.directory):
        raise Refused(f"{directory}: no such directory; karrot pipeline ingest makes the tables")
    return tables


def _halt(spark: "SparkSession", number: int, _frame: object) -> None:
    """Stop the job and end the process. The user can run the job again.

    Spark's own handler raises an error during a call to the JVM. After this error there is no connection left to stop
    the job.
    """
    # A new thread has its own connection to the JVM.
    halting = threading.Thread(target=_stop, args=(spark,), daemon=True)
    halting.start()
    halting.join(_HALT_S)
    click.echo("karrot: interrupted", err=True)
    os._exit(128 + number)


def _stop(spark: "SparkSession") -> None:
    from karrot.pipeline.store.lease import release_all

    spark.sparkContext.setLogLevel("OFF")  # otherwise Spark logs a stack trace for each job that ends here
    spark.sparkContext.cancelAllJobs()
    for query in spark.streams.active:
        query.stop()
    release_all()
    spark.stop()


def read_trigger(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Convert an interval to Spark's form. Raises Refused."""
    from karrot.settings.types import ValueKind

    kind = ValueKind(_spark_interval, "a duration such as 10 seconds, 1 minute, 30s or 500ms")
    return None if text is None else value_of(kind, option.opts[0], text)


trigger_option = partial(click.option, "--every", "trigger", callback=read_trigger, metavar="DURATION")


def _spark_interval(text: str) -> str:
    if short := re.fullmatch(r"([0-9]{1,9}) ?(ms|s|m|h|d|)", text.strip()):
        return f"{short[1]} {_UNITS[short[2] or 's']}"
    if not re.fullmatch(r"(?: *[0-9]{1,9} +(?:millisecond|second|minute|hour|day)s?)+", text.strip(), re.IGNORECASE):
        raise ValueError(text)
    return text.strip()
