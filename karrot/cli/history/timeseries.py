"""``karrot history timeseries``: prints metrics of a group over a range of time, one line for each step."""

from datetime import timedelta
from functools import partial
from typing import Any

import click

from karrot.cli.errors import Refused, valid
from karrot.cli.history.open_tables import answered, named, places
from karrot.cli.history.range_request import RangeRequest, days_json, nothing_known, range_options, say_missing
from karrot.cli.table import Column, PrintedTable, json_line, print_lines
from karrot.text import to_minute


def _steps(_context: click.Context, _option: click.Parameter, text: str) -> Any:
    from karrot.history import granularity

    return valid(partial(granularity, text))


def _metrics(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of metrics. A comma separates names in one option. Keep each name once."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or ("lag",)


@click.command()
@places
@click.option("--group", required=True, help="The consumer group.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_metrics,
    metavar="NAME[,...]",
    help="Names of metrics, listed in docs/history.md. Repeatable.  [default: lag]",
)
@click.option(
    "--granularity",
    "step",
    default="1m",
    show_default=True,
    callback=_steps,
    help="Length of a step in whole minutes, such as 1m, 5m, 1h or 1d.",
)
@click.option("--topic", help="For metrics of partitions: use only this topic.")
@click.option("--partition", type=click.IntRange(0), help="With --topic: use only this partition.")
@range_options
@click.option(
    "--order",
    type=click.Choice(["asc", "desc"]),
    help="Order of the rows by time.  [default: asc; desc if all metrics are offsets]",
)
def timeseries(group: str, metrics: tuple[str, ...], step: Any, order: str | None, **given: Any) -> None:
    """Print metrics of a group over time, one line for each step.

    A step without data about the group is left out. An unknown value is a dash, never a zero.
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
    columns = [Column("TIME", "at", to_minute)]
    columns += [Column(name.upper().replace("_", "-"), name, is_number=True) for name in series.metrics]
    table = PrintedTable(
        columns, [{"at": at} | dict(zip(series.metrics, values, strict=True)) for at, values in series.points]
    )
    if request.as_json:
        about = {"cluster": series.cluster, "group": series.group}
        seconds = {"granularity_seconds": series.granularity // timedelta(seconds=1)}
        click.echo(json_line({**about, **seconds, "points": table, "days": days_json(days)}))
        return
    print_lines(table.lines())
    say_missing(days, what)
