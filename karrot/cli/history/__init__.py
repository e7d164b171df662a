"""``karrot history``: queries the pipeline's tables, in milliseconds and without Spark."""

import click

from karrot.cli.history.moment_commands import describe, risks, stale
from karrot.cli.history.range_commands import groups, incidents, timeseries

__all__ = ["history"]


@click.group(commands=[groups, timeseries, incidents, describe, stale, risks])
def history() -> None:
    """Query the history of consumer groups in the tables.

    These commands need the extra "history" (DuckDB). They need neither Spark nor a running Karrot. The exit code is 1
    if the tables have no data for the requested time. It is 2 if there are no tables, or for wrong options.
    """
