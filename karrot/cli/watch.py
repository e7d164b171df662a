"""``karrot watch``: reads offsets from Kafka and prints or posts verdicts by Burrow's rules, without Burrow."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.auth_headers import credentials
from karrot.cli.errors import end_on_signals, valid
from karrot.cli.groups.group_tables import KAFKA, health_fields, tally
from karrot.cli.options import value_of
from karrot.cli.table import Column, PrintedTable, print_lines, terminal_width
from karrot.text import clock, counted_plain

if TYPE_CHECKING:
    from karrot.event import LagEvent
    from karrot.watch.outputs import PollOutcome, Sink


_COLUMNS = (
    Column("GROUP", "group", may_be_cut=True),
    Column("STATUS", "status"),
    Column("LAG", "lag", is_number=True),
    Column("MAX-LAG", "max_lag", is_number=True, goes=1),
    *KAFKA,
)


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
    polls is filled, or when nothing moved for a whole one. Needs confluent-kafka: pip install 'karrot-burrow[kafka]'.
    """
    from karrot import logs
    from karrot.clock import SystemClock
    from karrot.settings import types
    from karrot.watch.cluster_interface import connect
    from karrot.watch.persistence import FileKeeper, NoKeeper
    from karrot.watch.poll_and_judge import Watcher, run

    brokers = value_of(types.brokers, "--bootstrap-servers", bootstrap_servers)
    excluded = None if exclude is None else value_of(types.pattern, "--exclude", exclude)
    name = value_of(types.text, "--cluster", cluster)
    stop = threading.Event()
    printer = Printer(_as_json if as_json else _as_table, stop)
    watcher = Watcher(
        name=name,
        cluster=valid(partial(connect, brokers, properties)),
        clock=SystemClock(),
        sink=printer if post is None else _poster(post, user),
        keeper=NoKeeper() if state is None else FileKeeper(state),
        interval=interval,
        exclude=excluded,
    )
    logs.configure("INFO", sys.stderr)
    end_on_signals(stop)
    run(watcher, stop)
    if printer.trouble is not None:
        raise printer.trouble


class Printer:
    """Prints the outcome of each poll. If its output is closed, the watch ends, and ``trouble`` says why."""

    def __init__(self, show: Callable[["PollOutcome"], list[str]], stop: threading.Event) -> None:
        self._show = show
        self._stop = stop
        self.trouble: OSError | None = None

    def send(self, outcome: "PollOutcome", age_ms: Callable[[], int]) -> None:  # noqa: ARG002 (it is printed at once)
        """Print it."""
        try:
            print_lines(self._show(outcome))
        except OSError as error:
            self.trouble = error
            self._stop.set()

    def close(self) -> None:
        """Nothing is held."""


def _as_json(outcome: "PollOutcome") -> list[str]:
    from karrot.burrow.payload import to_wire

    return [to_wire(event).decode() for event in outcome.events]


def _as_table(outcome: "PollOutcome") -> list[str]:
    verdicts = {event.consumer: event for event in outcome.events}
    rows = [
        {"group": group.consumer} | _verdict_fields(verdicts.get(group.consumer)) | health_fields(group)
        for group in sorted(outcome.groups, key=lambda each: each.consumer)
    ]
    return [*PrintedTable(_COLUMNS, rows).lines(terminal_width()), _sum(outcome, len(rows)), ""]


def _verdict_fields(event: "LagEvent | None") -> dict[str, Any]:
    largest = event and event.max_lag
    return {
        "status": event and event.status_text,
        "lag": event and event.total_lag,
        "max_lag": largest and largest.current_lag,
    }


def _sum(outcome: "PollOutcome", groups: int) -> str:
    """The time, the sum, the verdicts, and how many groups have none yet."""
    judged = {event.consumer for event in outcome.events}
    waiting = sum(group.consumer not in judged for group in outcome.groups)
    lag = f"lag {sum(event.total_lag or 0 for event in outcome.events)}" if outcome.events else ""
    told = [lag, tally(event.status_text for event in outcome.events), f"{waiting} not judged yet" if waiting else ""]
    polled = f"{clock(outcome.polled_at_ms / 1000)} UTC"
    return "; ".join([f"{polled}: {counted_plain(groups, 'group')}", *filter(None, told)])


def _poster(url: str, user: str | None) -> "Sink":
    from karrot import render
    from karrot.watch.outputs import PostSink

    return PostSink(valid(partial(render.webhook, url)), valid(partial(credentials, user)))
