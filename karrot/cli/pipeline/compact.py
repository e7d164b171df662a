"""``karrot pipeline compact``: merges small files and drops old days."""

from datetime import UTC, datetime, timedelta

import click

from karrot.cli.options import read_span
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.spark_options import spark_options, started, tables_in, wait_option
from karrot.text import counted_plain

keep_option = click.option(
    "--keep",
    default="400d",
    show_default=True,
    callback=read_span(10 * 365 * 86_400),
    help="Remove days that are older than this from every table.",
)


@click.command()
@spark_options
@keep_option
@wait_option
def compact(directory: str, master: str | None, conf: dict[str, str], keep: timedelta, wait: timedelta | None) -> None:
    """Merge the small files of each past day into one file, and remove old days.

    You can run it at the same time as ingest. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with started("compact", master, conf) as spark, errors_as_sentences():
        from karrot.pipeline.store import compact as job
        from karrot.pipeline.store.lease import DERIVED, writing

        tables = tables_in(spark, directory)
        with writing(spark, tables, DERIVED, "karrot pipeline compact", wait=wait) as leased:
            done = job.compact(spark, leased, keep=keep, today=datetime.now(UTC).date())
    dropped = counted_plain(len(done.dropped), "day")
    click.echo(f"merged {counted_plain(done.files_before, 'file')} into {done.files_after}, dropped {dropped}")
