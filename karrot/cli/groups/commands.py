"""``karrot groups``, ``status`` and ``lag``: print what Burrow and Kafka know of groups, once or until Ctrl-C."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused
from karrot.cli.groups.burrow_or_kafka import GroupAnswers, ask, ask_kafka, beside_burrow, cluster_of, cluster_reader
from karrot.cli.groups.group_tables import groups_json, groups_table, partition_tables
from karrot.cli.options import option_set, value_of
from karrot.cli.table import print_lines

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow
    from karrot.watch.cluster_reader import ClusterReader


_group_options = option_set(
    click.option(
        "--burrow",
        "url",
        envvar="KARROT_BURROW_URL",
        help="Burrow's address, such as http://burrow:8000; without it KARROT_BURROW_URL.",
    ),
    click.option(
        "--bootstrap-servers",
        "bootstrap",
        metavar="HOST:PORT,...",
        help="Brokers, to be asked for state, members and coordinator; without --burrow for the lag too.",
    ),
    click.option(
        "--properties",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --bootstrap-servers: a file of client properties, as of karrot watch.",
    ),
    click.option("--cluster", help="Needed where Burrow has several."),
    click.option("--group", "groups", multiple=True, help="One group; can be given again. Without it all."),
    click.option("--watch", is_flag=True, help="Again and again until Ctrl-C."),
    click.option(
        "--interval", type=click.FloatRange(0.5, 3600), default=5, show_default=True, help="Seconds with --watch."
    ),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of tables."),
)


@click.command()
@_group_options
def groups(**asked: Any) -> None:
    """List the groups that Burrow knows, with lag and skew.

    A line each: status, lag, and the share of the worst partition. With --bootstrap-servers also what Kafka says of
    each: state, members, coordinator, messages deleted unread, and the margin until that happens; with --watch also
    the rebalances since the first look.

    Exit code 1 if Burrow or Kafka does not answer or does not know what was named, 2 if it is unclear what is asked.
    """
    _run(groups_table, with_all_partitions=False, **asked)


@click.command()
@_group_options
def status(**asked: Any) -> None:
    """Print Burrow's verdicts and the partitions behind them.

    Exit codes as those of `karrot groups`; a bad verdict is not a failure.
    """
    if asked["url"] is None and asked["bootstrap"] is not None:
        raise Refused("a verdict takes a history: --burrow names who has one, and karrot watch gathers one")
    _run(partition_tables, with_all_partitions=False, **asked)


@click.command()
@_group_options
def lag(**asked: Any) -> None:
    """Print the lag of every partition, as Burrow has it.

    With the sum, and the share of the worst partition. With --bootstrap-servers alone it is Kafka's answer.

    Exit codes as those of `karrot groups`.
    """
    _run(partition_tables, with_all_partitions=True, **asked)


def _run(
    table: Callable[[GroupAnswers], Iterator[str]],
    *,
    url: str | None,
    bootstrap: str | None,
    properties: Path | None,
    cluster: str | None,
    groups: tuple[str, ...],
    watch: bool,
    interval: float,
    as_json: bool,
    with_all_partitions: bool,
) -> None:
    """Ask Burrow, Kafka or both, and print the answer as ``table`` lays it out: once, or until Ctrl-C."""
    with ExitStack() as held:
        look = None
        if url is not None:
            from karrot.burrow.client import Burrow
            from karrot.settings import types

            burrow = held.enter_context(Burrow(value_of(types.url, "--burrow", url)))
            look = partial(_ask_burrow, burrow, cluster, groups, with_all_partitions=with_all_partitions)
        if bootstrap is not None:
            kafka = cluster_reader(bootstrap, properties, cluster)
            look = partial(ask_kafka, kafka, groups) if look is None else partial(_beside, look, kafka)
        if look is None:
            raise Refused("whom to ask? --burrow takes Burrow's address, --bootstrap-servers those of brokers")
        show = groups_json if as_json else table
        if watch:
            _keep_watching(look, show, interval)
        else:
            _once(look, show)


def _beside(look: Callable[[], GroupAnswers], kafka: "ClusterReader") -> GroupAnswers:
    return beside_burrow(look(), kafka)


def _ask_burrow(
    burrow: "Burrow", cluster: str | None, groups: tuple[str, ...], *, with_all_partitions: bool
) -> GroupAnswers:
    from karrot.burrow.client import BurrowError

    try:
        return ask(burrow, cluster_of(burrow, cluster), groups, with_all_partitions=with_all_partitions)
    except BurrowError as error:
        raise NotDone(str(error)) from error


def _once(look: Callable[[], GroupAnswers], show: Callable[[GroupAnswers], Iterator[str]]) -> None:
    asked = look()
    print_lines(show(asked))
    if asked.has_failed:
        raise NotDone("\n".join(asked.notes))
    for note in asked.notes:
        click.echo(f"karrot: {note}", err=True)


def _keep_watching(
    look: Callable[[], GroupAnswers], show: Callable[[GroupAnswers], Iterator[str]], interval: float
) -> None:
    """Print the answer again and again until Ctrl-C. If Burrow does not answer, print that, and ask again."""
    with suppress(KeyboardInterrupt):
        while True:
            try:
                asked = look()
                lines, notes = list(show(asked)), asked.notes
            except NotDone as error:
                lines, notes = [], [error.message]
            click.clear()
            print_lines(lines)
            for note in notes:
                click.echo(f"karrot: {note}", err=True)
            time.sleep(interval)
