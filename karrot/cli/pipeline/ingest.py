"""``karrot pipeline ingest``: writes events from the archive or from a topic to tables."""

import json
import threading
from typing import Any

import click

from karrot.cli.errors import end_on_signals
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.source_options import event_source_of, event_source_options
from karrot.cli.pipeline.spark_options import read_trigger, spark_options, started


@click.command(short_help="Write new events from the archive or a topic to the tables.")
@event_source_options
@spark_options
@click.option("--follow", is_flag=True, help="Continue with new events until Ctrl-C.")
@click.option(
    "--trigger",
    default="30 seconds",
    show_default=True,
    callback=read_trigger,
    help="With --follow: how often to read new events.",
)
@click.option("--checkpoint", help="Folder that records which events were read.  [default: a folder in the tables]")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def ingest(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write new events from the archive or a topic to the tables "events", "partitions" and "quarantine".

    The command counts every line: lines read = events + quarantined + duplicates. You can run it again at any time,
    even after a crash. Do not run it twice at the same time on the same tables.

    The exit code is 1 if a batch failed or Kafka does not answer, and 2 if Spark cannot run here or there is nothing to
    read.
    """
    source = event_source_of(asked)
    follow, as_json = asked["follow"], asked["as_json"]
    with started("ingest", master, conf) as spark:
        from karrot.pipeline.ingest.job import Ingest
        from karrot.pipeline.store.table_files import Tables

        job = Ingest(
            spark,
            source(),
            Tables(directory),
            checkpoint=asked["checkpoint"] or "",
            tell=click.echo if follow and not as_json else lambda _summary: None,
        )
        stop = threading.Event()
        if follow:
            end_on_signals(stop)
        with errors_as_sentences(asked):
            total = job.run(asked["trigger"] if follow else None, stop)
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))
