"""``karrot pipeline ingest``: writes events from the archive or from a topic to tables."""

import json
import threading
from typing import Any

import click

from karrot.cli.errors import end_on_signals
from karrot.cli.options import follow_option
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.source_options import event_source_of, event_source_options
from karrot.cli.pipeline.spark_options import checkpoint_option, spark_options, started, trigger_option, wait_option


@click.command(short_help="Write new events from the archive or a topic to the tables.")
@event_source_options
@spark_options
@follow_option("Continue with new events until Ctrl-C.", default=False)
@trigger_option(
    default="30 seconds",
    show_default=True,
    help="With --follow: how often to read new events.",
)
@checkpoint_option(help="Folder that records which events were read.  [default: a folder in the tables]")
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def ingest(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write new events from the archive or a topic to the tables "events", "partitions" and "quarantine".

    The command counts every line: lines read = events + quarantined + duplicates. You can run it again at any time,
    even after a crash. Only one ingest or stream can write the same tables at the same time.

    The exit code is 1 if a batch failed, if Kafka does not answer or if another command writes the tables. It is 2 if
    Spark cannot run here or there is nothing to read.
    """
    source = event_source_of(asked)
    follow, as_json = asked["follow"], asked["as_json"]
    tell = click.echo if follow and not as_json else lambda _summary: None
    with started("ingest", master, conf) as spark, errors_as_sentences(asked):
        from karrot.pipeline.ingest.job import Ingest
        from karrot.pipeline.store.filesystem import place_for
        from karrot.pipeline.store.lease import EVENTS, writing
        from karrot.pipeline.store.table_files import Tables

        stop, tables = threading.Event(), Tables.at(spark, directory)
        if follow:
            end_on_signals(stop)
        with writing(spark, tables, EVENTS, "karrot pipeline ingest", wait=asked["wait"], stop=stop) as leased:
            checkpoint = place_for(spark, asked["checkpoint"] or "")
            job = Ingest(spark, source(), leased, checkpoint=checkpoint, tell=tell)
            total = job.run(asked["trigger"] if follow else None, stop)
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))
