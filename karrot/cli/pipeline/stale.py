"""``karrot pipeline stale``: prints or posts an alert for each partition whose committed offset does not move."""

import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, valid
from karrot.cli.options import read_span
from karrot.cli.pipeline.job_errors import why_it_failed
from karrot.cli.pipeline.spark_options import read_trigger, spark_options, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.stale.alert_job import DeliverySummary
    from karrot.pipeline.store.tables import Tables


_span = read_span(366 * 86_400)


@click.command()
@spark_options
@click.option(
    "--for", "length", default="2m", show_default=True, callback=_span, help="How long an offset must stand still."
)
@click.option(
    "--webhook", metavar="URL", envvar="KARROT_STALE_WEBHOOK", show_envvar=True, help="POST each line there, as JSON."
)
@click.option("--once", is_flag=True, help="Judge what is there and end.")
@click.option(
    "--trigger",
    default="10 seconds",
    show_default=True,
    callback=read_trigger,
    help="How often to look for what is new.",
)
@click.option(
    "--look-back",
    default="1d",
    show_default=True,
    callback=_span,
    help="How old a day's commits may be at the first start.",
)
@click.option("--checkpoint", help="What was seen and told so far; below the tables if not given.")
def stale(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Tell of partitions whose committed offset stands still while there is something to read; until Ctrl-C.

    Follows the tables commits and ends, which karrot pipeline offsets --follow writes. A partition that becomes stale
    is a line of JSON with "state": "stale", on standard output unless there is a webhook; once its offset moves, or is
    taken back, another follows with "state": "cleared" and the same id. A restart loses and repeats nothing; only where
    a run was killed between a delivery and its note, that line comes twice.

    Exit code 1 if it failed or, with --once, if a line could not be delivered.
    """
    deliver = valid(partial(_delivery, asked["webhook"]))
    spark = started("stale", master, conf)
    from pyspark.errors import StreamingQueryException

    from karrot.pipeline.stale.alert_job import StaleAlerts
    from karrot.pipeline.store.tables import Tables
    from karrot.pipeline.stream.query_runner import run_queries

    tables, stop, troubled = Tables(directory), threading.Event(), list["DeliverySummary"]()
    checkpoint = asked["checkpoint"] or tables.checkpoint("stale")
    since = (datetime.now(UTC) - asked["look_back"]).date()
    job = StaleAlerts(spark, tables, checkpoint, asked["length"], since, deliver, partial(_tell, troubled))
    if not asked["once"]:
        end_on_signals(stop)
    try:
        say_if_empty(spark, tables, once=asked["once"])
        run_queries([job.start(None if asked["once"] else asked["trigger"])], stop=stop, follow=not asked["once"])
    except StreamingQueryException as error:
        raise NotDone(why_it_failed(str(error))) from error
    finally:
        spark.stop()
    if asked["once"] and troubled:
        raise NotDone(f"{troubled[-1].unsent} lines wait for another run: {troubled[-1].trouble}")


def say_if_empty(spark: "SparkSession", tables: "Tables", *, once: bool) -> None:
    """Say that there are no commits yet: no alert would look as if every group moved. With ``once``, raise Refused."""
    if tables.days(spark, "commits"):
        return
    said = f"{tables.directory} has no commits: karrot pipeline offsets reads them"
    if once:
        raise Refused(said)
    click.echo(f"karrot: {said}; waiting for the first", err=True)


def _delivery(webhook: str | None) -> Callable[[str], None]:
    from karrot.pipeline.stale.alert_job import to_stream, to_webhook

    return to_stream(sys.stdout) if webhook is None else to_webhook(webhook)


def _tell(troubled: list["DeliverySummary"], told: "DeliverySummary") -> None:
    """Print why the webhook did not take lines. ``troubled`` gets the last batch if it had trouble."""
    troubled[:] = [told] if told.trouble else []
    if told.trouble:
        dropped = f", {told.dropped} of the oldest dropped" if told.dropped else ""
        click.echo(f"karrot: the webhook did not take a line ({told.trouble}): {told.unsent} wait{dropped}", err=True)
