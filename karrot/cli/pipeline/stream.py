"""``karrot pipeline stream``: publishes events to CloudWatch from Spark."""

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, end_on_signals
from karrot.cli.options import config_option, follow_option
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand
from karrot.cli.pipeline.judging import cloudwatch_options

if TYPE_CHECKING:
    from karrot.pipeline.publish_to_cloudwatch import Published

_REPLACED = (
    "karrot pipeline stream is replaced, and the next release removes it. Now: the service's reporter cloudwatch, or "
    "karrot pipeline offsets --judge burrow --to cloudwatch"
)


@click.command(cls=JobCommand, hidden=True)
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
    options = cloudwatch_options(asked["config"])
    click.echo(f"karrot: {_REPLACED}", err=True)
    source = shared.event_source_of(asked)
    every = (asked["every"] or timedelta(seconds=options.interval_s)) if asked["follow"] else None
    stop, lost = threading.Event(), list["Published"]()

    def tell(published: "Published") -> None:
        click.echo(str(published))
        lost.extend([published] if published.is_lost else [])

    with shared.started("stream", asked) as (spark, tables):
        from karrot.pipeline.publish_to_cloudwatch import publisher_beside, start_publishing
        from karrot.pipeline.stream.streaming_queries import run_queries

        if every is not None:
            # Replace the handlers of `started`, which would end the process in the middle of a batch.
            end_on_signals(stop)
        events = source()
        checkpoint = shared.checkpoint_in(spark, asked, tables.checkpoint(events.checkpoint("cloudwatch")))
        publisher = publisher_beside(spark, checkpoint, options, stop)
        query = start_publishing(spark, events, checkpoint, publisher, tell=tell, every=every)
        run_queries([query], stop=stop, follow=every is not None)
    if lost and every is None:
        raise NotDone(str(lost[-1]))
