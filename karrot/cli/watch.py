"""`karrot watch`: Burrow's verdicts from Kafka itself."""
# ruff: noqa: PLC0415

import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karrot.cli.common import valid

if TYPE_CHECKING:
    from karrot.watch import Outcome, Sink

__all__ = ["COMMANDS"]

_HEAD = ("GROUP", "STATUS", "LAG", "MAX-LAG", "STATE", "MEMBERS", "COORDINATOR", "REBALANCES", "LOST", "MARGIN")


@click.command()
@click.option("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="Brokers of the cluster.")
@click.option("--cluster", required=True, metavar="NAME", help="What the cluster is called in events.")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=10, show_default=True, help="Seconds.")
@click.option("--post", metavar="URL", help="Another Karrot's address: each verdict is posted as Burrow would.")
@click.option(
    "--user", help="With --post: for Basic authentication; the password is KARROT_BURROW_PASSWORD (or _FILE)."
)
@click.option(
    "--properties",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of client properties (TLS, SASL, MSK IAM), under librdkafka's or Java's names.",
)
@click.option("--exclude", metavar="REGEX", help="Groups whose name matches anywhere are not watched.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file that keeps rings and incidents across a restart.",
)
@click.option("--json", "as_json", is_flag=True, help="Without --post: print verdicts as Burrow would post them.")
def watch(
    *,
    bootstrap_servers: str,
    cluster: str,
    interval: float,
    post: str | None,
    user: str | None,
    properties: Path | None,
    exclude: str | None,
    state: Path | None,
    as_json: bool,
) -> None:
    """Judge consumer groups as Burrow would, without Burrow.

    Ends with Ctrl-C. Without --post the verdicts are printed. The first one on a group falls when half a ring of ten
    polls is filled, or when nothing moved for a whole one. Needs confluent-kafka: pip install 'karrot[kafka]'.
    """
    from karrot import logs, values
    from karrot.clock import SystemClock
    from karrot.watch import FileKeeper, NoKeeper, Watcher, connect, run

    brokers = valid(partial(values.checked, values.brokers, "--bootstrap-servers", bootstrap_servers))
    excluded = None if exclude is None else valid(partial(values.checked, values.pattern, "--exclude", exclude))
    name = valid(partial(values.checked, values.text, "--cluster", cluster))
    sink = _poster(post, user) if post is not None else Printer(_as_json if as_json else _as_table)
    watcher = Watcher(
        name=name,
        cluster=valid(partial(connect, brokers, properties)),
        clock=SystemClock(),
        sink=sink,
        keeper=NoKeeper() if state is None else FileKeeper(state),
        interval=interval,
        exclude=excluded,
    )
    logs.configure("INFO", sys.stderr)
    run(watcher, _told_to_stop())


class Printer:
    """Prints what each poll brought."""

    def __init__(self, show: Callable[["Outcome"], list[str]]) -> None:
        self._show = show

    def send(self, outcome: "Outcome", age_ms: Callable[[], int]) -> None:  # noqa: ARG002 (it is printed at once)
        """Print it."""
        for line in self._show(outcome):
            click.echo(line)

    def close(self) -> None:
        """Nothing is held."""


def _as_json(outcome: "Outcome") -> list[str]:
    from karrot.burrow.payload import to_wire

    return [to_wire(event).decode() for event in outcome.events]


def _as_table(outcome: "Outcome") -> list[str]:
    verdicts = {event.consumer: event for event in outcome.events}
    rows: list[tuple[str, ...]] = [_HEAD]
    for group in sorted(outcome.groups, key=lambda each: each.consumer):
        said = verdicts.get(group.consumer)
        largest = None if said is None or said.max_lag is None else said.max_lag.current_lag
        values = (
            *((None, None, None) if said is None else (said.status_text, said.total_lag, largest)),
            *(group.state, group.members, group.coordinator, group.rebalances),
            *(group.messages_lost, group.retention_margin),
        )
        rows.append((_printable(group.consumer), *("-" if value is None else str(value) for value in values)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, ""]


def _printable(name: str) -> str:
    """No control characters for a terminal."""
    return re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", lambda found: found[0].encode("unicode_escape").decode(), name)


def _poster(url: str, user: str | None) -> "Sink":
    from karrot import render
    from karrot.cli.probing import credentials
    from karrot.watch import PostSink

    return PostSink(valid(partial(render.webhook, url)), valid(partial(credentials, user)))


def _told_to_stop() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # By a thread: the handler interrupts whoever waits for the event, perhaps while he holds its lock.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    return stop


COMMANDS = (watch,)
