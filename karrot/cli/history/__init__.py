"""``karrot history``: what the pipeline's tables tell, in milliseconds and without Spark."""

import click

from karrot.cli.history.describe import describe, risks, stale
from karrot.cli.history.timeseries import groups, incidents, timeseries

__all__ = ["history"]


@click.group(commands=[groups, timeseries, incidents, describe, stale, risks])
def history() -> None:
    """Ask the pipeline's tables what was, and where groups stand.

    Needs the extra "history" (DuckDB), neither Spark nor a running Karrot. Exit code 1 if there is nothing in that
    time, 2 if there are no tables or it is unclear what is asked.
    """
