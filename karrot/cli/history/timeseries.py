"""``karrot history timeseries``: prints metrics of a group over a range of time."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import Refused, valid
from karrot.cli.history.missing_days import days_json, say_missing
from karrot.cli.history.open_tables import answered, named, places, show
from karrot.cli.history.range_request import RangeRequest, nothing_known, range_options
from karrot.cli.table import Column, laid_out, number
from karrot.text import iso, to_minute

if TYPE_CHECKING:
    from karrot.history import Days, TimeSeries


def _steps(_context: click.Context, _option: click.Parameter, text: str) -> Any:
    from karrot.history import granularity

    return valid(partial(granularity, text))


def _metrics(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Several may come in one text, between commas; one that is named twice is one."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or ("lag",)


@click.command()
@places
@click.option("--group", required=True, help="The group.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_metrics,
    metavar="NAME[,...]",
    help="Can be given again; docs/history.md lists them.  [default: lag]",
)
@click.option(
    "--granularity", "step", default="1m", show_default=True, callback=_steps, help="Whole minutes: 1m, 5m, 1h, 1d."
)
@click.option("--topic", help="Of this topic alone, for metrics of partitions.")
@click.option("--partition", type=click.IntRange(0), help="Of this partition alone, with --topic.")
@range_options
@click.option(
    "--order", type=click.Choice(["asc", "desc"]), help="By time.  [default: asc; desc if all are metrics of offsets]"
)
def timeseries(group: str, metrics: tuple[str, ...], step: Any, order: str | None, **given: Any) -> None:
    """Print how metrics of a group went, step by step.

    A step in which nothing was said of the group is left out, and what was not known is a dash, never a zero.
    """
    from karrot.history import METRICS, reads_newest_first

    parts = {name: given[name] for name in ("topic", "partition") if given[name] is not None}
    if list(parts) == ["partition"]:
        raise Refused("--partition needs --topic")
    request = RangeRequest.of(given)
    what = f"{', '.join(metrics)} of {named(request.cluster, group)}"
    with answered(request.tables) as history:
        series = history.timeseries(
            group,
            request.span,
            cluster=request.cluster,
            metrics=metrics,
            granularity=step,
            parts=parts,
            newest_first=order == "desc" if order else reads_newest_first(metrics),
            limit=request.limit,
        )
        tables = [METRICS[name].table for name in metrics]
        if not series.points:
            raise nothing_known(request, history, what, group, tables[0])
        days = history.held(request.passed, *tables, cluster=request.cluster, group=group)
    if request.as_json:
        show(series_json(series, days))
        return
    show(series_table(series))
    say_missing(days, what)


def series_table(series: "TimeSeries") -> Iterator[str]:
    """A line for each step."""
    columns = [Column("TIME"), *(Column(name.upper().replace("_", "-"), is_number=True) for name in series.metrics)]
    rows = [(to_minute(point.at), *map(number, point.values)) for point in series.points]
    return laid_out(columns, rows)


def series_json(series: "TimeSeries", days: "Days") -> dict[str, Any]:
    """The points as objects with the metrics' names."""
    points = [{"at": iso(each.at)} | dict(zip(series.metrics, each.values, strict=True)) for each in series.points]
    return {
        "cluster": series.cluster,
        "group": series.group,
        "granularity_seconds": series.granularity // timedelta(seconds=1),
        "points": points,
        "days": days_json(days),
    }
