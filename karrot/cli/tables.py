"""``karrot groups``, ``status`` and ``lag``: what Burrow knows, as ``kafka-consumer-groups`` shows it."""
# ruff: noqa: PLC0415

import contextlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.asked import Asked, ask, cluster_of
from karrot.cli.columns import Column, laid_out, shown
from karrot.cli.common import NotDone, valid

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow
    from karrot.event import LagEvent, PartitionLag

__all__ = ["COMMANDS"]

_GROUPS = (
    Column("GROUP", may_be_cut=True),
    Column("STATUS"),
    Column("LAG", is_number=True),
    Column("SHARE", is_number=True),
    Column("WORST", may_be_cut=True, goes=3),
    Column("PARTITIONS", is_number=True, goes=1),
    Column("COMPLETE", is_number=True, goes=2),
)
_PARTITIONS = (
    Column("GROUP", may_be_cut=True, goes=4),
    Column("TOPIC", may_be_cut=True),
    Column("PARTITION", is_number=True),
    Column("CURRENT-OFFSET", is_number=True, goes=3),
    Column("LOG-END-OFFSET", is_number=True, goes=2),
    Column("LAG", is_number=True),
    Column("STATUS"),
    Column("OWNER", may_be_cut=True, goes=1),
)
_UNKNOWN = "-"


_OPTIONS = (
    click.option(
        "--burrow",
        "url",
        required=True,
        envvar="KARROT_BURROW_URL",
        help="Burrow's address, such as http://burrow:8000; without it KARROT_BURROW_URL.",
    ),
    click.option("--cluster", help="Needed where Burrow has several."),
    click.option("--group", "groups", multiple=True, help="One group; can be given again. Without it all."),
    click.option("--watch", is_flag=True, help="Again and again until Ctrl-C."),
    click.option(
        "--interval", type=click.FloatRange(0.5, 3600), default=5, show_default=True, help="Seconds with --watch."
    ),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of tables."),
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("groups")
@_options
def groups_command(**asked: Any) -> None:
    """List the groups that Burrow knows, with lag and skew.

    A line each: status, lag, and the share of the worst partition.

    Exit code 1 if Burrow does not answer or does not know what was named, 2 if it is unclear what is asked.
    """
    _run(_groups_table, with_all_partitions=False, **asked)


@click.command()
@_options
def status(**asked: Any) -> None:
    """Print Burrow's verdicts and the partitions behind them.

    Exit codes as those of `karrot groups`; a bad verdict is not a failure.
    """
    _run(_partition_tables, with_all_partitions=False, **asked)


@click.command()
@_options
def lag(**asked: Any) -> None:
    """Print the lag of every partition, as Burrow has it.

    With the sum, and the share of the worst partition.

    Exit codes as those of `karrot groups`.
    """
    _run(_partition_tables, with_all_partitions=True, **asked)


def _run(
    table: Callable[[Asked], Iterator[str]],
    *,
    url: str,
    cluster: str | None,
    groups: tuple[str, ...],
    watch: bool,
    interval: float,
    as_json: bool,
    with_all_partitions: bool,
) -> None:
    from karrot import values
    from karrot.burrow.client import Burrow

    address = valid(partial(values.checked, values.url, "--burrow", url))
    with Burrow(address) as burrow:
        look = partial(_look, burrow, cluster, groups, with_all_partitions=with_all_partitions)
        show = _json_line if as_json else table
        if watch:
            _keep_watching(look, show, interval)
        else:
            _once(look, show)


def _look(burrow: "Burrow", cluster: str | None, groups: tuple[str, ...], *, with_all_partitions: bool) -> Asked:
    from karrot.burrow.client import BurrowError

    try:
        return ask(burrow, cluster_of(burrow, cluster), groups, with_all_partitions=with_all_partitions)
    except BurrowError as error:
        raise NotDone(str(error)) from error


def _once(look: Callable[[], Asked], show: Callable[[Asked], Iterator[str]]) -> None:
    asked = look()
    for line in show(asked):
        click.echo(line)
    if asked.has_failed:
        raise NotDone("\n".join(asked.notes))
    for note in asked.notes:
        click.echo(f"karrot: {note}", err=True)


def _keep_watching(look: Callable[[], Asked], show: Callable[[Asked], Iterator[str]], interval: float) -> None:
    """Until Ctrl-C. A Burrow that is away for a while is said and asked again."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                asked = look()
                lines, notes = list(show(asked)), asked.notes
            except NotDone as error:
                lines, notes = [], [error.message]
            click.clear()
            for line in lines:
                click.echo(line)
            for note in notes:
                click.echo(f"karrot: {note}", err=True)
            time.sleep(interval)


# --- what is shown ---


def _groups_table(asked: Asked) -> Iterator[str]:
    rows = [_group_row(event) for event in asked.verdicts]
    if rows:
        yield from laid_out(_GROUPS, rows, _width())
        counts = Counter(event.status_text for event in asked.verdicts)
        told = ", ".join(f"{number} {_safe(status)}" for status, number in sorted(counts.items()))
        total = sum(event.total_lag or 0 for event in asked.verdicts)
        yield f"{_safe(asked.cluster)}: {_counted(len(rows), 'group')}, lag {total}; {told}"


def _group_row(event: "LagEvent") -> tuple[str, ...]:
    worst = event.max_lag
    return (
        _safe(event.consumer),
        _safe(event.status_text),
        _number(event.total_lag),
        _share(event),
        _UNKNOWN if worst is None else f"{_safe(worst.topic)}-{worst.partition}",
        _number(event.partition_count),
        _UNKNOWN if event.complete is None else f"{event.complete:.0%}",
    )


def _partition_tables(asked: Asked) -> Iterator[str]:
    """A block for each group, as Kafka's own tool prints them."""
    width = _width()
    for number, event in enumerate(asked.verdicts):
        if number and (event.partitions or asked.verdicts[number - 1].partitions):
            yield ""
        if event.partitions:
            yield from laid_out(_PARTITIONS, [_partition_row(event, each) for each in event.partitions], width)
        yield _sum(event)


def _partition_row(event: "LagEvent", one: "PartitionLag") -> tuple[str, ...]:
    return (
        _safe(event.consumer),
        _safe(one.topic),
        str(one.partition),
        _number(None if one.end is None else one.end.offset),
        _number(_log_end(one)),
        _number(one.current_lag),
        _safe(one.status_text),
        _safe(one.owner) if one.owner else _UNKNOWN,
    )


def _sum(event: "LagEvent") -> str:
    worst = event.max_lag
    told = f"{_safe(event.consumer)}: {_safe(event.status_text)}, lag {_number(event.total_lag)}"
    if worst is not None and event.total_lag:
        told += f", {_share(event)} of it in {_safe(worst.topic)}-{worst.partition}"
    if event.partition_count is not None:
        told += f"; {_counted(event.partition_count, 'partition')}"
    return told if event.complete in (None, 1) else f"{told}, {event.complete:.0%} complete"


def _json_line(asked: Asked) -> Iterator[str]:
    failed = [{"group": group, "error": str(error)} for group, error in asked.failed.items()]
    verdicts = [_as_json(event) for event in asked.verdicts]
    yield json.dumps({"cluster": asked.cluster, "groups": verdicts, "failed": failed})


def _as_json(event: "LagEvent") -> dict[str, Any]:
    worst = event.max_lag
    return {
        "group": event.consumer,
        "status": event.status_text,
        "lag": event.total_lag,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "worst": worst and _partition_as_json(worst) | {"share": _share_of(event)},
        "partitions": [_partition_as_json(each) for each in event.partitions],
    }


def _partition_as_json(one: "PartitionLag") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "current_offset": one.end and one.end.offset,
        "log_end_offset": _log_end(one),
        "lag": one.current_lag,
        "status": one.status_text,
        "owner": one.owner,
        "client_id": one.client_id,
    }


def _log_end(one: "PartitionLag") -> int | None:
    """What Burrow counts the lag from. Where the commit is ahead of what it last saw there, the commit."""
    return None if one.end is None or one.current_lag is None else one.end.offset + one.current_lag


def _share_of(event: "LagEvent") -> float | None:
    """The worst partition's share of the lag: 1/n of n partitions is even, 1 is all in one."""
    if event.max_lag is None or event.max_lag.current_lag is None or not event.total_lag:
        return None
    return event.max_lag.current_lag / event.total_lag


def _share(event: "LagEvent") -> str:
    share = _share_of(event)
    return _UNKNOWN if share is None else f"{share:.0%}"


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _safe(text: str) -> str:
    return shown(text, sys.stdout.encoding)


def _width() -> int | None:
    """The terminal's; none where the output is kept or COLUMNS does not ask for one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


COMMANDS = (groups_command, status, lag)
