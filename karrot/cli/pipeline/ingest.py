"""``karrot pipeline ingest``: writes the events of the archive, or of a topic, to tables."""

import json
import threading
from typing import Any

import click

from karrot.cli.errors import end_on_signals
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.source_options import event_source_of, event_source_options
from karrot.cli.pipeline.spark_options import read_trigger, spark_options, started


@click.command()
@event_source_options
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
    source = event_source_of(asked)
    spark = started("ingest", master, conf)
    from karrot.pipeline.ingest.job import Ingest
    from karrot.pipeline.store.tables import Tables

    follow, as_json = asked["follow"], asked["as_json"]
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
    try:
        with errors_as_sentences(asked):
            total = job.run(asked["trigger"] if follow else None, stop)
    finally:
        spark.stop()
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))
