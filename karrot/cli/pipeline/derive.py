"""``karrot pipeline derive``: rewrites the tables that are computed from events and commits."""

from functools import partial
from typing import Any

import click

from karrot.cli.options import Number, day_option, read_span
from karrot.cli.pipeline.spark_options import spark_options, started, tables_in
from karrot.text import counted_plain

_span = read_span(10 * 365 * 86_400)
_gap = read_span(86_400)  # a day is derived from itself and the days next to it


@click.command()
@spark_options
@day_option(
    "--day", "only", multiple=True, help="Derive this day (UTC) and no other, changed or not; can be given again."
)
@click.option(
    "--silence", default="300s", show_default=True, callback=_span, help="How long a verdict holds: KARROT_STALE_AFTER."
)
@click.option(
    "--longest-gap",
    default="600s",
    show_default=True,
    callback=_gap,
    help="Between two looks at a partition, for its rates.",
)
@click.option("--target-seconds", type=Number(0), default=60, show_default=True, help="The lag in time to stay within.")
@click.option(
    "--objective",
    type=Number(0, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="The share of minutes that must be within it.",
)
def derive(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Rewrite what changed: minutes, incidents, intervals, lags, rates, skew, rebalances and the SLO.

    Takes the days whose events or commits came, went or were written again since the last time, all of them if an
    option differs from then. Readers see each day of a table as it was or as it is now. Never run it twice at a time on
    the same tables.
    """
    spark = started("derive", master, conf)
    from karrot.pipeline.derive import job
    from karrot.pipeline.derive.slo_daily import Objective

    rules = job.DeriveRules(
        asked["silence"], asked["longest_gap"], Objective(asked["target_seconds"], asked["objective"])
    )
    only = [day.date() for day in asked["only"]]
    try:
        days = job.derive(
            spark, tables_in(spark, directory), rules, only=only, on_progress=partial(click.echo, err=True)
        )
    finally:
        spark.stop()
    click.echo(f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed")
