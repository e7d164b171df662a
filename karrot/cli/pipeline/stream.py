"""``karrot pipeline stream``: publishes events to CloudWatch from Spark."""

import logging
import os
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, stated
from karrot.cli.options import config_option, follow_option
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand

if TYPE_CHECKING:
    from karrot.pipeline.publish_to_cloudwatch import Published
    from karrot.settings.options import CloudWatch as Options

_TWICE = (
    "KARROT_REPORTERS has cloudwatch, so the service publishes to CloudWatch already, and every sample would count "
    "twice: remove cloudwatch from KARROT_REPORTERS"
)


@click.command(cls=JobCommand)
@shared.event_options
@shared.kafka_options
@shared.spark_options
@shared.checkpoint_option(help="Folder that records what CloudWatch got.  [default: a folder in the tables]")
@config_option
@follow_option("Continue with new events until Ctrl-C, or publish the existing events once, and end.", default=True)
@shared.trigger_option(help="How often to read new events.  [default: KARROT_CLOUDWATCH_INTERVAL]")
def stream(**asked: Any) -> None:
    """Publish events to CloudWatch from Spark, until Ctrl-C.

    Use this command if you have more groups than one process can handle. It sends the service's metrics to CloudWatch,
    with the service's settings KARROT_CLOUDWATCH_*, KARROT_IAM_ROLE and AWS_*. Publish either from the service or from
    Spark, never from both. The command writes no tables: `karrot pipeline run` writes them.

    With --once, the exit code is 1 if values were lost. A value is lost if CloudWatch does not accept it
    within KARROT_CLOUDWATCH_TTL.
    """
    options = stated(partial(_options, asked["config"]))
    source = shared.event_source_of(asked)
    every = (asked["every"] or timedelta(seconds=options.interval_s)) if asked["follow"] else None
    stop, lost = threading.Event(), list["Published"]()

    def tell(published: "Published") -> None:
        click.echo(str(published))
        lost.extend([published] if published.is_lost else [])

    with shared.started("stream", asked) as (spark, tables):
        from karrot.clock import SystemClock
        from karrot.pipeline.publish_to_cloudwatch import Fanout, Publisher, notes_beside
        from karrot.pipeline.stream.streaming_queries import run_queries
        from karrot.reporters.cloudwatch.boto_client import open_client

        if every is not None:
            # Replace the handlers of `started`, which would end the process in the middle of a batch.
            end_on_signals(stop)
        events, clock = source(), SystemClock()
        checkpoint = shared.checkpoint_in(spark, asked, tables.checkpoint(events.checkpoint("cloudwatch")))
        client = partial(open_client, options, os.environ)
        publisher = Publisher(options, notes_beside(spark, checkpoint), clock, client, stop.wait)
        query = Fanout(spark, events, checkpoint, publisher, clock, tell).start(every)
        run_queries([query], stop=stop, follow=every is not None)
    if lost and every is None:
        raise NotDone(str(lost[-1]))


def _options(config: Path | None) -> "Options":
    """Return the cloudwatch reporter's settings. Raises SettingsError, or Refused if the service also publishes."""
    from karrot import logs
    from karrot.settings.loading import SettingsError, load

    # The Spark jobs accept any URL in KARROT_TABLES_DIR, but the service's settings accept only a folder or S3.
    environ = {name: text for name, text in os.environ.items() if name != "KARROT_TABLES_DIR"}
    # Not strict, because the service's file may have settings of reporters that are not installed on this machine.
    loaded = load(environ, config=config, overrides={"reporters": "cloudwatch"}, strict=False)
    with suppress(SettingsError):  # the settings were valid with the reporter on, so it is off here
        if "cloudwatch" in load(environ, config=config, strict=False).settings.reporters:
            raise Refused(_TWICE)
    logs.configure(loaded.settings.log, sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs the errors that it raises
    return loaded.settings.cloudwatch
