"""``karrot history groups``, ``timeseries`` and ``incidents``: what there was between two moments."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.answering import answered, named, places, show, span_of
from karrot.cli.common import NotDone, Refused, valid
from karrot.cli.options import put_on

if TYPE_CHECKING:
    from karrot.history import History, Span

__all__ = ["groups", "incidents", "timeseries"]

_OPTIONS = (
    click.option(
        "--from", "since", default="24h", show_default=True, help="ISO 8601 (UTC), or so long ago: 90m, 24h, 7d."
    ),
    click.option("--to", "until", default="now", show_default=True, help="Up to, not including; as --from."),
    click.option("--limit", type=click.IntRange(1), help="So many at the most."),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of a table."),
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    return put_on(command, *_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What every one of these commands was asked."""

    tables: Path
    span: "Span"
    cluster: str | None
    limit: int | None
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Take the common options out of those that were given."""
        span = span_of(given.pop("since"), given.pop("until"))
        return cls(given.pop("tables"), span, given.pop("cluster"), given.pop("limit"), given.pop("as_json"))


@click.command()
@places
@click.option("--group", help="This group alone.")
@_options
@click.option(
    "--order",
    type=click.Choice(["name", "lag", "lag_max", "not_ok", "incidents"]),
    default="name",
    show_default=True,
    help="By name, or the largest first.",
)
def groups(group: str | None, order: str, **given: Any) -> None:
    """List the groups, with their lag, bad minutes and incidents in that time."""
    from karrot.cli.histories import groups_json, groups_table
    from karrot.history import GroupOrder

    asked = _Asked.of(given)
    with answered(asked.tables) as history:
        found = history.groups(asked.span, cluster=asked.cluster, group=group, order=GroupOrder(order))
        _require(found, asked, history, f"group {group!r}" if group else "any group")
    show(groups_json(found[: asked.limit]) if asked.as_json else groups_table(found, asked.limit))


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
@_options
@click.option(
    "--order", type=click.Choice(["asc", "desc"]), help="By time.  [default: asc; desc if all are metrics of offsets]"
)
def timeseries(group: str, metrics: tuple[str, ...], step: Any, order: str | None, **given: Any) -> None:
    """Print how metrics of a group went, step by step.

    A step in which nothing was said of the group is left out, and what was not known is a dash, never a zero.
    """
    from karrot.cli.histories import series_json, series_table
    from karrot.history import METRICS, reads_newest_first

    parts = {name: given[name] for name in ("topic", "partition") if given[name] is not None}
    if list(parts) == ["partition"]:
        raise Refused("--partition needs --topic")
    asked = _Asked.of(given)
    with answered(asked.tables) as history:
        series = history.timeseries(
            group,
            asked.span,
            cluster=asked.cluster,
            metrics=metrics,
            granularity=step,
            parts=parts,
            newest_first=order == "desc" if order else reads_newest_first(metrics),
            limit=asked.limit,
        )
        what = f"{', '.join(metrics)} of group {group!r}"
        _require(series.points, asked, history, what, METRICS[metrics[0]].table)
    show(series_json(series) if asked.as_json else series_table(series))


@click.command()
@places
@click.option("--group", help="This group alone.")
@_options
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest", "peak_lag", "longest"]),
    default="newest",
    show_default=True,
    help="Which comes first.",
)
def incidents(group: str | None, order: str, **given: Any) -> None:
    """List the incidents that lasted in that time, those still open too.

    That there was none is an answer: exit code 0. Of a group that is in no table nothing is known: exit code 1.
    """
    from karrot.cli.histories import incidents_json, incidents_table
    from karrot.history import IncidentOrder

    asked = _Asked.of(given)
    with answered(asked.tables) as history:
        found = history.incidents(asked.span, cluster=asked.cluster, group=group, order=IncidentOrder(order))
        if not (found or history.knows(cluster=asked.cluster, group=group)):
            raise _stranger(asked, group)
    show(incidents_json(found[: asked.limit]) if asked.as_json else incidents_table(found, asked.limit))


def _stranger(asked: _Asked, group: str | None) -> NotDone:
    return NotDone(f"nothing is known of {named(asked.cluster, group)}: no table of {asked.tables} has it, on any day")


def _require(found: object, asked: _Asked, history: "History", what: str, table: str = "lag_minute") -> None:
    """Nothing found ends the command with what there would be."""
    if found:
        return
    days = history.days(table)
    there = f"{asked.tables} has {days[0]} to {days[-1]}" if days else f"{asked.tables} has no table {table}"
    span = f"{asked.span.start:%Y-%m-%d %H:%M} to {asked.span.end:%Y-%m-%d %H:%M} UTC"
    raise NotDone(f"nothing is known of {what} from {span}; {there}")
