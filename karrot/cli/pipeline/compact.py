"""``karrot pipeline compact``: merges small files and drops old days."""

from datetime import UTC, datetime, timedelta

import click

from karrot.cli.options import read_span
from karrot.cli.pipeline.spark_options import spark_options, started, tables_in
from karrot.text import counted_plain


@click.command()
@spark_options
@click.option(
    "--keep",
    default="400d",
    show_default=True,
    callback=read_span(10 * 365 * 86_400),
    help="Remove days that are older than this from every table.",
)
def compact(directory: str, master: str | None, conf: dict[str, str], keep: timedelta) -> None:
    """Merge the small files of each past day into one file, and remove old days.

    You can run it at the same time as ingest, but not at the same time as derive or another compact.
    """
    with started("compact", master, conf) as spark:
        from karrot.pipeline.store import compact as job

        done = job.compact(spark, tables_in(spark, directory), keep=keep, today=datetime.now(UTC).date())
    dropped = counted_plain(len(done.dropped), "day")
    click.echo(f"merged {counted_plain(done.files_before, 'file')} into {done.files_after}, dropped {dropped}")
