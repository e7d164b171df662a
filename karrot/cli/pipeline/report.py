"""``karrot pipeline report``: writes an HTML report about a range of days."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from karrot.cli.errors import Refused
from karrot.cli.options import day_option
from karrot.cli.pipeline.spark_options import spark_options, started

_LONGEST = timedelta(days=3_660)


@click.command()
@spark_options
@day_option("--from", "first", help="First day (UTC).  [default: six days before --to]")
@day_option("--to", "last", help="Last day, included.  [default: the newest day in the tables]")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), help="The file to write."
)
def report(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write a report about a range of days, as a single, self-contained HTML file.

    The report shows the groups that were furthest behind, the incidents, the use of the error budget, topics with skew,
    groups whose capacity runs out, and the next steps.

    The exit code is 2 if the tables have none of these days.
    """
    first, last, output = asked["first"], asked["last"], asked["output"]
    if first and last and first > last:
        raise Refused(f"--from {first:%Y-%m-%d} is after --to {last:%Y-%m-%d}")
    if first and last and last - first >= _LONGEST:
        raise Refused(f"--from {first:%Y-%m-%d} to {last:%Y-%m-%d}: a report has at most {_LONGEST.days:,} days")
    with started("report", master, conf) as spark:
        from karrot.pipeline.report import job
        from karrot.pipeline.report.html_page import page
        from karrot.pipeline.store.table_files import Tables

        tables = Tables.at(spark, directory)
        try:
            period = job.period_of(spark, tables, first and first.date(), last and last.date())
            findings = job.find(spark, tables, period)
        except job.NothingToReportError as error:
            raise Refused(str(error)) from error
    written = page(findings, made_at=datetime.now(UTC))
    try:
        output.write_text(written.html, encoding="utf-8")
    except OSError as error:
        raise Refused(str(error)) from error
    click.echo(f"{output}: {written.headline}")
