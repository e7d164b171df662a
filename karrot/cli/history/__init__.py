"""``karrot history``: answers from the pipeline's tables, in milliseconds and without Spark."""

import click

from karrot.cli.history import describe, groups, incidents, risks, stale, timeseries

__all__ = ["history"]


@click.group(
    commands=[groups.groups, timeseries.timeseries, incidents.incidents, describe.describe, stale.stale, risks.risks]
)
def history() -> None:
    """Ask the pipeline's tables what was, and where groups stand.

    Needs the extra "history" (DuckDB), neither Spark nor a running Karrot. Exit code 1 if there is nothing in that
    time, 2 if there are no tables or it is unclear what is asked.
    """
