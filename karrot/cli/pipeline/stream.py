"""``karrot pipeline stream``: publishes events to CloudWatch and keeps the tables up to date."""

import logging
import os
import sys
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, stated, valid
from karrot.cli.options import config_option, follow_option
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand

if TYPE_CHECKING:
    from karrot.pipeline.publish_to_cloudwatch import Published
    from karrot.settings.options import CloudWatch as Options

_TABLES, _CLOUDWATCH = "tables", "cloudwatch"
_TWICE = (
    "KARROT_REPORTERS has cloudwatch, so the service publishes to CloudWatch already, and every sample would count "
    "twice: remove cloudwatch from KARROT_REPORTERS"
)


@click.command(cls=JobCommand)
@shared.event_source_options
@click.option("--to", "destinations", default="tables,cloudwatch", help="Where to write: tables, cloudwatch, or both.")
@click.option(
    "--tables",
    "directory",
    callback=shared.read_spark_place,
    envvar="KARROT_TABLES_DIR",
    show_envvar=True,
    help="Directory or URL of the tables.  [default: the folder tables next to the archive]",
)
@shared.checkpoint_option(help="Folder that records what CloudWatch got.  [default: a folder in the tables]")
@shared.wait_option
@shared.session_options
@config_option
@follow_option("Continue with new events until Ctrl-C, or publish the existing events once, and end.", default=True)
@shared.trigger_option(help="How often to read new events.  [default: KARROT_CLOUDWATCH_INTERVAL]")
def stream(**asked: Any) -> None:
    """Publish events to CloudWatch from Spark, and keep the tables up to date, until Ctrl-C.

    Use this command if you have more groups than one process can handle. It sends the service's metrics to CloudWatch,
    with the service's settings KARROT_CLOUDWATCH_*, KARROT_IAM_ROLE and AWS_*. Publish either from the service or from
    Spark, never from both. The command writes the same tables as `karrot pipeline ingest`, so only one of these
    two commands can run at the same time.

    With --once, the exit code is 1 if values were lost. A value is lost if CloudWatch does not accept it
    within KARROT_CLOUDWATCH_TTL.
    """
    destinations = valid(partial(_destinations, asked["destinations"]))
    options = stated(partial(_options, asked["config"])) if _CLOUDWATCH in destinations else None
    source = shared.event_source_of(asked)
    asked["directory"] = asked["directory"] or _beside(asked["archive"])
    every = asked["trigger"] or f"{options.interval_s if options else 30} seconds" if asked["follow"] else None
    stop, lost = threading.Event(), list["Published"]()

    def tell(published: "Published") -> None:
        click.echo(str(published))
        lost.extend([published] if published.is_lost else [])

    with shared.started("stream", asked) as (spark, tables), ExitStack() as leases:
        from karrot.clock import SystemClock
        from karrot.pipeline.ingest.job import Ingest
        from karrot.pipeline.publish_to_cloudwatch import Fanout, Publisher, notes_beside
        from karrot.pipeline.store.write_lease import EVENTS, writing
        from karrot.pipeline.stream.streaming_queries import run_queries
        from karrot.reporters.cloudwatch.boto_client import open_client

        if every is not None:
            # Replace the handlers of `started`, which would end the process in the middle of a batch.
            end_on_signals(stop)
        jobs = list[Ingest | Fanout]()
        if _TABLES in destinations:
            lease = writing(spark, tables, EVENTS, "karrot pipeline stream", wait=asked["wait"], stop=stop)
            jobs.append(Ingest(spark, source(), leases.enter_context(lease), tell=click.echo))
        if options:
            events, clock = source(), SystemClock()
            checkpoint = shared.checkpoint_in(spark, asked, tables.checkpoint(events.checkpoint(_CLOUDWATCH)))
            client = partial(open_client, options, os.environ)
            publisher = Publisher(options, notes_beside(spark, checkpoint), clock, client, stop.wait)
            jobs.append(Fanout(spark, events, checkpoint, publisher, clock, tell))
        run_queries([each.start(every) for each in jobs], stop=stop, follow=every is not None)
    if lost and every is None:
        raise NotDone(str(lost[-1]))


def _destinations(text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not named or not set(named) <= {_TABLES, _CLOUDWATCH}:
        raise ValueError(f"--to is {text!r}: it must be tables, cloudwatch, or both")
    return named


def _options(config: Path | None) -> "Options":
    """Return the cloudwatch reporter's settings. Raises SettingsError, or Refused if the service also publishes."""
    from karrot import logs
    from karrot.settings.loading import SettingsError, load

    # The Spark jobs accept any URL in KARROT_TABLES_DIR, but the service's settings accept only a folder or S3.
    environ = {name: text for name, text in os.environ.items() if name != "KARROT_TABLES_DIR"}
    # Not strict, because the service's file may have settings of reporters that are not installed on this machine.
    loaded = load(environ, config=config, overrides={"reporters": "cloudwatch"}, strict=False)
    with suppress(SettingsError):  # the settings were valid with the reporter on, so it is off here
        if _CLOUDWATCH in load(environ, config=config, strict=False).settings.reporters:
            raise Refused(_TWICE)
    logs.configure(loaded.settings.log, sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs the errors that it raises
    return loaded.settings.cloudwatch


def _beside(archive: str | None) -> str:
    if archive is None:
        raise Refused("--source kafka needs --tables: without an archive there is no default for the tables")
    above = archive.rstrip("/").rpartition("/")[0]
    if above.endswith(":/"):
        raise Refused(f"--archive {archive} needs --tables: a bucket has no folder next to it")
    return f"{above or '.'}/tables"
