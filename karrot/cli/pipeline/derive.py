"""``karrot pipeline derive``: writes the derived tables again for the days that changed."""

from functools import partial
from typing import Any

import click

from karrot.cli.options import Number, day_option, read_span
from karrot.cli.pipeline.spark_options import spark_options, started, tables_in
from karrot.text import counted_plain

_span = read_span(10 * 365 * 86_400)
_gap = read_span(86_400)  # derive reads a day and the days before and after it


@click.command()
@spark_options
@day_option("--day", "only", multiple=True, help="Derive only this day (UTC), even if it did not change. Repeatable.")
@click.option(
    "--silence",
    default="300s",
    show_default=True,
    callback=_span,
    help="How long a verdict is valid. Use the value of the service's KARROT_STALE_AFTER.",
)
@click.option(
    "--longest-gap",
    default="600s",
    show_default=True,
    callback=_gap,
    help="Longest time between two samples of a partition from which a rate is calculated.",
)
@click.option(
    "--target-seconds", type=Number(0), default=60, show_default=True, help="SLO: largest allowed lag in seconds."
)
@click.option(
    "--objective",
    type=Number(0, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="SLO: share of the minutes in which the lag must not be above --target-seconds.",
)
def derive(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write the derived tables again for the days that changed.

    The derived tables contain the lag, offsets, rates and skew of each minute, and also incidents, status intervals,
    rebalances and the SLO of each day. The command derives each day whose events or commits were added, removed or
    rewritten since the last run. If you change an option, the command derives all days again. Readers see either the
    old or the new version of a day in a table. Do not run the command twice at the same time on the same tables.
    """
    with started("derive", master, conf) as spark:
        from karrot.pipeline.derive import job
        from karrot.pipeline.derive.slo_daily import Objective

        objective = Objective(asked["target_seconds"], asked["objective"])
        rules = job.DeriveRules(asked["silence"], asked["longest_gap"], objective)
        only, tell = [day.date() for day in asked["only"]], partial(click.echo, err=True)
        days = job.derive(spark, tables_in(spark, directory), rules, only=only, on_progress=tell)
    click.echo(f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed")
