"""``karrot pipeline stale``: prints or posts an alert for each partition whose committed offset does not move."""

import sys
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, valid
from karrot.cli.options import follow_option, read_span
from karrot.cli.pipeline.job_errors import JobCommand
from karrot.cli.pipeline.spark_options import checkpoint_in, checkpoint_option, spark_options, started, trigger_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.stale.alert_job import DeliverySummary
    from karrot.pipeline.store.table_files import Tables


_span = read_span(3_660 * 86_400)


@click.command(cls=JobCommand, short_help="Send an alert for each partition whose committed offset does not move.")
@spark_options
@click.option(
    "--stale-for",
    "length",
    default="2m",
    callback=_span,
    help="A partition is stale if its committed offset did not move for this time.",
)
@click.option(
    "--webhook",
    metavar="URL",
    envvar="KARROT_STALE_WEBHOOK",
    show_envvar=True,
    help="POST each line to this URL, as JSON.",
)
@follow_option("Continue until Ctrl-C, or judge the data in the tables once, and end.", default=True)
@trigger_option(default="10s", help="How often to read new commits and log ends.")
@click.option(
    "--look-back",
    default="1d",
    callback=_span,
    help="How far back the first run reads commits, rounded up to whole days.",
)
@checkpoint_option(help="Folder that records what was read and sent.  [default: a folder in the tables]")
def stale(**asked: Any) -> None:
    """Send an alert for each partition whose committed offset does not move while there are messages to read.

    The command runs until Ctrl-C. It reads the tables "commits" and "ends", which `karrot pipeline offsets --follow`
    writes. When a partition becomes stale, the command prints a line of JSON with "state": "stale", or posts it to the
    webhook. When the offset moves or is deleted, the command sends another line with "state": "cleared" and the same
    id. A restart loses no line. In one case, a line is sent twice: the last run was killed after it sent the line and
    before it recorded the line as sent.

    The exit code is 1 if the command failed. With --once, it is also 1 if the command could not deliver a line.
    """
    from karrot.pipeline.stale.alert_job import StaleAlerts, to_stream, to_webhook

    webhook = asked["webhook"]
    deliver = to_stream(sys.stdout) if webhook is None else valid(partial(to_webhook, webhook))
    with started("stale", asked) as (spark, tables):
        from karrot.pipeline.stream.streaming_queries import run_queries

        stop, undelivered = threading.Event(), list["DeliverySummary"]()
        checkpoint = checkpoint_in(spark, asked, tables.checkpoint("stale"))
        since = (datetime.now(UTC) - asked["look_back"]).date()
        job = StaleAlerts(spark, tables, checkpoint, asked["length"], since, deliver, partial(_tell, undelivered))
        if asked["follow"]:
            end_on_signals(stop)
        say_if_empty(spark, tables, once=not asked["follow"])
        query = valid(partial(job.start, asked["every"] if asked["follow"] else None))
        run_queries([query], stop=stop, follow=asked["follow"])
    if undelivered and not asked["follow"]:
        raise NotDone(f"{undelivered[-1].unsent} lines were not delivered, run again: {undelivered[-1].problem}")


def say_if_empty(spark: "SparkSession", tables: "Tables", *, once: bool) -> None:
    """Print a message if the tables have no commits: users would otherwise think that no partition is stale.

    With ``once``, raise Refused instead of printing.
    """
    if tables.days(spark, "commits"):
        return
    said = f"{tables.directory} has no commits: run karrot pipeline offsets"
    if once:
        raise Refused(said)
    click.echo(f"karrot: {said}; waiting for the first", err=True)


def _tell(undelivered: list["DeliverySummary"], summary: "DeliverySummary") -> None:
    """Print why the webhook did not accept lines. Then ``undelivered`` has this batch if the batch failed."""
    undelivered[:] = [summary] if summary.problem else []
    if summary.problem:
        dropped = f", the {summary.dropped} oldest were dropped" if summary.dropped else ""
        click.echo(
            f"karrot: the webhook did not accept a line ({summary.problem}): {summary.unsent} lines wait{dropped}",
            err=True,
        )
