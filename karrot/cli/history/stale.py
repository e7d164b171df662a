"""``karrot history stale``: prints partitions whose committed offset does not move, at any moment."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.history.moment_request import (
    LOOK_BACK_HELP,
    MomentRequest,
    limit_option,
    look_back_option,
    moment_options,
    nothing_known_at,
    read_duration,
    when,
)
from karrot.cli.history.open_tables import answered, json_fields, places, show
from karrot.cli.table import Column, laid_out, number, safe, terminal_width
from karrot.text import compact_duration, counted_plain, to_second

if TYPE_CHECKING:
    from karrot.history import StaleGroups, StalePartition


_STALE = (
    Column("SINCE"),
    Column("STALE-FOR", is_number=True),
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("TOPIC", may_be_cut=True),
    Column("PARTITION", is_number=True),
    Column("CURRENT-OFFSET", is_number=True, goes=2),
    Column("LOG-END-OFFSET", is_number=True, goes=1),
    Column("LAG", is_number=True),
)


@click.command()
@places
@click.option("--group", help="This group alone.")
@moment_options
@limit_option
@click.option(
    "--for", "length", default="2m", show_default=True, callback=read_duration, help="Stale for at least so long."
)
@look_back_option("7d", LOOK_BACK_HELP)
def stale(length: timedelta, look_back: timedelta, limit: int | None, **given: Any) -> None:
    """List the partitions whose committed offset stood still while there was something to read.

    The rule is that of karrot pipeline stale. That there is none is an answer: exit code 0. Of a
    group without any commit in --look-back nothing is known: exit code 1.
    """
    request = MomentRequest.of(given)
    with answered(request.tables) as opened:
        found = opened.stale(request.at, length, cluster=request.cluster, group=request.group, look_back=look_back)
        if not (
            found.partitions
            or opened.last_commit(request.at, cluster=request.cluster, group=request.group, look_back=look_back)
        ):
            raise nothing_known_at(request, opened.days("commits"))
    show(stale_json(found, limit) if request.as_json else stale_table(found, length, limit))


def stale_table(found: "StaleGroups", least: timedelta, limit: int | None = None) -> Iterator[str]:
    """A line for each partition, ``limit`` of them at the most, how many there are in all and how new that is."""
    partitions = found.partitions
    if partitions:
        yield from laid_out(_STALE, list(map(_stale_row, partitions[:limit])), terminal_width())
    groups = {(each.cluster, each.group) for each in partitions}
    told = f"{counted_plain(len(partitions), 'partition')} of {counted_plain(len(groups), 'group')} stale"
    yield f"{told}, {to_second(found.at)}: {', '.join(_known_of(found, least))}"


def _known_of(found: "StaleGroups", least: timedelta) -> Iterator[str]:
    """How new the commits and log ends are: log ends from before the time asked for say nothing about it."""
    if found.committed_at:
        yield f"last commit {when(found.committed_at, found.at)}"
    if found.looked_at is None:
        yield "log ends not known"
        return
    is_old = found.at - found.looked_at > least
    yield f"log ends of {when(found.looked_at, found.at)}" + (" (nothing newer is known)" if is_old else "")


def _stale_row(one: "StalePartition") -> tuple[str, ...]:
    return (
        to_second(one.since),
        compact_duration((one.looked_at - one.since).total_seconds()),
        safe(one.cluster),
        safe(one.group),
        safe(one.topic),
        str(one.partition),
        number(one.current_offset),
        number(one.log_end_offset),
        number(one.lag),
    )


def stale_json(found: "StaleGroups", limit: int | None = None) -> dict[str, Any]:
    """All of it, by the names of the answer's fields."""
    partitions = [json_fields(asdict(each) | {"lag": each.lag}) for each in found.partitions[:limit]]
    return json_fields(asdict(found) | {"partitions": partitions})
