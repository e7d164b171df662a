"""``karrot pipeline derive``: writes the derived tables again for the days that changed."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.options import Number, day_option, option_set, read_span
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.spark_options import spark_options, started, tables_in, wait_option
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.pipeline.derive.job import DeriveRules

_span = read_span(10 * 365 * 86_400)
_gap = read_span(86_400)  # derive reads a day and the days before and after it


derive_options = option_set(
    click.option(
        "--stale-after",
        "silence",
        default="300s",
        show_default=True,
        callback=_span,
        help="How long a verdict is valid. Use the value of the service's KARROT_STALE_AFTER.",
    ),
    click.option(
        "--longest-gap",
        default="600s",
        show_default=True,
        callback=_gap,
        help="Longest time between two samples of a partition from which a rate is calculated.",
    ),
    click.option(
        "--max-lag-seconds",
        "target_seconds",
        type=Number(0),
        default=60,
        show_default=True,
        help="SLO: largest allowed lag in seconds.",
    ),
    click.option(
        "--objective",
        type=Number(0, 1, max_open=True),
        default=0.99,
        show_default=True,
        help="SLO: share of the minutes in which the lag must not be above --max-lag-seconds.",
    ),
)
"""The options for the rules of a derivation. `rules_of` reads them."""


def rules_of(asked: Mapping[str, Any]) -> "DeriveRules":
    """Read the options for the rules."""
    from karrot.pipeline.derive.job import DeriveRules
    from karrot.pipeline.derive.slo_daily import Objective

    return DeriveRules(asked["silence"], asked["longest_gap"], Objective(asked["target_seconds"], asked["objective"]))


@click.command()
@spark_options
@wait_option
@day_option("--day", "only", multiple=True, help="Derive only this day (UTC), even if it did not change. Repeatable.")
@derive_options
def derive(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write the derived tables again for the days that changed.

    The derived tables contain the lag, offsets, rates and skew of each minute, and also incidents, status intervals,
    rebalances and the SLO of each day. The command derives each day whose events or commits were added, removed or
    rewritten since the last run. If you change an option, the command derives all days again. Readers see either the
    old or the new version of a day in a table. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with started("derive", master, conf) as spark, errors_as_sentences():
        from karrot.pipeline.derive import job
        from karrot.pipeline.store.lease import DERIVED, writing

        only, tell = [day.date() for day in asked["only"]], partial(click.echo, err=True)
        tables = tables_in(spark, directory)
        with writing(spark, tables, DERIVED, "karrot pipeline derive", wait=asked["wait"]) as leased:
            days = job.derive(spark, leased, rules_of(asked), only=only, on_progress=tell)
    click.echo(f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed")
