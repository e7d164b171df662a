"""``karrot pipeline report``: writes an HTML report about a range of days."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from karrot.cli.errors import Refused
from karrot.cli.options import day_option
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand

_LONGEST: Final = timedelta(days=3_660)


@click.command(cls=JobCommand, short_help="Write a report about a range of days as an HTML file.")
@shared.spark_options
@day_option("--from", "first", help="First day (UTC).  [default: six days before --to]")
@day_option("--to", "last", help="Last day, included.  [default: the newest day in the tables]")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), help="The file to write."
)
def report(**asked: Any) -> None:
    """Write a report about a range of days, as a single, self-contained HTML file.

    The report shows the groups that were furthest behind, the incidents, the use of the error budget, topics with skew,
    groups whose capacity runs out, and the next steps. karrot pipeline run --report writes the same report again and
    again.

    The exit code is 2 if the tables have none of these days.
    """
    first, last = asked["first"], asked["last"]
    if first and last and first > last:
        raise Refused(f"--from {first:%Y-%m-%d} is after --to {last:%Y-%m-%d}")
    if first and last and last - first >= _LONGEST:
        raise Refused(f"--from {first:%Y-%m-%d} to {last:%Y-%m-%d}: a report has at most {_LONGEST.days:,} days")
    with shared.started("report", asked) as (spark, tables):
        from karrot.pipeline.report.html_page import write_report

        headline = write_report(spark, tables, asked["output"], first and first.date(), last and last.date())
    click.echo(f"{asked['output']}: {headline}")
