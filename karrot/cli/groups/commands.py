"""``karrot groups``, ``status`` and ``lag``: print groups from Burrow and Kafka, once or until Ctrl-C."""

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
from karrot.cli.options import (
    Command,
    client_properties_option,
    follow_option,
    option_set,
    read_seconds,
    value_of,
)
from karrot.cli.table import print_lines

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow
    from karrot.watch.cluster_reader import ClusterReader


def _group_options(without_burrow: str) -> Callable[[Command], Command]:
    """The shared options of the commands. ``without_burrow`` is the help on --bootstrap-servers without --burrow."""
    return option_set(
        click.option(
            "--burrow",
            "url",
            envvar="KARROT_BURROW_URL",
            help="Address of Burrow, such as http://burrow:8000.  [default: KARROT_BURROW_URL]",
        ),
        click.option(
            "--bootstrap-servers",
            "bootstrap",
            metavar="HOST:PORT,...",
            help=f"Kafka brokers. The output then has the state, members and coordinator of groups. {without_burrow}",
        ),
        client_properties_option(
            help="With --bootstrap-servers: a file with client properties, as for karrot watch.",
        ),
        click.option("--cluster", help="Name of the cluster. Required if Burrow has several clusters."),
        click.option(
            "--group", "groups", multiple=True, help="Show only this group. Repeatable.  [default: all groups]"
        ),
        follow_option("Repeat until Ctrl-C.", default=False),
        click.option(
            "--every",
            "interval",
            default="5s",
            show_default=True,
            callback=read_seconds(0.5, 3600),
            metavar="DURATION",
            help="With --follow: time between two updates of the output.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables."),
    )


_groups_of_kafka = _group_options("Without --burrow, the lag comes from Kafka's offsets.")


@click.command()
@_groups_of_kafka
def groups(**asked: Any) -> None:
    """List the consumer groups with their status, lag and skew.

    Each line shows the status, the lag, and how much of the lag (in percent) is on the partition with the largest lag.

    With --bootstrap-servers, a line also shows the state, members and coordinator of the group in Kafka. LOST is the
    number of messages that Kafka deleted before the group read them. MARGIN is the number of messages that Kafka can
    delete before the group loses unread messages. With --follow, a line also shows the rebalances since the command
    started.

    The exit code is 1 if Burrow or Kafka does not answer, or does not know the given cluster or group, or if Burrow
    lists no group. It is 2 for wrong options.
    """
    _run(groups_table, with_all_partitions=False, **asked)


@click.command(short_help="Print Burrow's verdicts and the bad partitions.")
@_group_options("`karrot status` needs --burrow too.")
def status(**asked: Any) -> None:
    """Print Burrow's verdicts, with the partitions that are not OK.

    The exit codes are those of `karrot groups`. A bad verdict does not change the exit code.
    """
    if asked["url"] is None and asked["bootstrap"] is not None:
        raise Refused("Kafka alone gives no verdict, which needs several polls: give --burrow, or use karrot watch")
    _run(partition_tables, with_all_partitions=False, **asked)


@click.command()
@_groups_of_kafka
def lag(**asked: Any) -> None:
    """Print the lag of every partition, as Burrow reports it.

    The last line shows the total lag, and how much of it (in percent) is on the partition with the largest lag. With
    --bootstrap-servers and without --burrow, the lag comes from Kafka.

    The exit codes are those of `karrot groups`.
    """
    _run(partition_tables, with_all_partitions=True, **asked)


def _run(
    table: Callable[[GroupAnswers], Iterator[str]],
    *,
    url: str | None,
    bootstrap: str | None,
    command_config: Path | None,
    cluster: str | None,
    groups: tuple[str, ...],
    follow: bool,
    interval: float,
    as_json: bool,
    with_all_partitions: bool,
) -> None:
    """Ask Burrow, Kafka or both, and print the answer with ``table``, once or until Ctrl-C."""
    with ExitStack() as held:
        look = None
        if url is not None:
            from karrot.burrow.client import Burrow
            from karrot.settings import types

            burrow = held.enter_context(Burrow(value_of(types.url, "--burrow", url)))
            look = partial(_ask_burrow, burrow, cluster, groups, with_all_partitions=with_all_partitions)
        if bootstrap is not None:
            kafka = cluster_reader(bootstrap, command_config, cluster)
            look = partial(ask_kafka, kafka, groups) if look is None else partial(_beside, look, kafka)
        if look is None:
            raise Refused("no source is given: give Burrow's address as --burrow, or brokers as --bootstrap-servers")
        show = groups_json if as_json else table
        if follow:
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
    """Print the answer at each interval until Ctrl-C. If there is no answer, print the error and ask again."""
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
