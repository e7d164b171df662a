"""``karrot watch``: polls Kafka, applies Burrow's rules, and prints or posts the verdicts, without Burrow."""

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from karrot.cli.errors import end_on_signals, valid
from karrot.cli.groups_status_lag import sum_of_known, tally
from karrot.cli.options import (
    brokers_option,
    client_properties_option,
    credentials,
    json_option,
    name_option,
    pattern_option,
    read_seconds,
)
from karrot.cli.print_table import Column, PrintedTable, print_lines
from karrot.text import clock, counted_plain

if TYPE_CHECKING:
    from karrot.watch.poll_loop import PollOutcome, Send


_COLUMNS = (
    Column("GROUP", "group"),
    Column("STATUS", "status"),
    Column("LAG", "lag", is_number=True),
    Column("MAX-LAG", "max_lag", is_number=True),
    Column("STATE", "state"),
    Column("MEMBERS", "members", is_number=True),
    Column("COORDINATOR", "coordinator", is_number=True),
    Column("REBALANCES", "rebalances", is_number=True),
    Column("LOST", "messages_lost", is_number=True),
    Column("MARGIN", "retention_margin", is_number=True),
)


@click.command()
@brokers_option(required=True, help="Brokers of the Kafka cluster.")
@name_option("--cluster", required=True, help="Name of the cluster in events.")
@click.option(
    "--every",
    "interval",
    default="10s",
    callback=read_seconds(0.1, 3600),
    metavar="DURATION",
    help="Time between two polls.",
)
@click.option("--post", metavar="URL", help="Address of another Karrot. Post each verdict there, as Burrow does.")
@click.option(
    "--user",
    help="With --post: user name for Basic authentication. The password comes from KARROT_BURROW_PASSWORD (or "
    "KARROT_BURROW_PASSWORD_FILE).",
)
@client_properties_option(
    help="A file with client properties (TLS, SASL, MSK IAM), with the names of librdkafka or of Kafka's Java client."
)
@pattern_option("--groups", help="Watch only groups whose name contains a match.")
@pattern_option("--exclude-groups", help="Do not watch groups whose name contains a match.")
@pattern_option("--topics", help="Watch only topics whose name contains a match.")
@pattern_option("--exclude-topics", help="Do not watch topics whose name contains a match.")
@pattern_option(
    "--offsets-elsewhere",
    help="Groups whose name contains a match keep their offsets outside Kafka: a missing offset is no problem.",
)
@click.option("--allowed-lag", type=click.IntRange(0), default=0, help="A partition with at most this lag is OK.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file that stores the windows and incidents, so that a restart does not lose them.",
)
@json_option("Without --post: print verdicts as JSON, as Burrow posts them.")
def watch(
    *,
    bootstrap_servers: Sequence[str],
    cluster: str,
    interval: float,
    post: str | None,
    user: str | None,
    command_config: Path | None,
    allowed_lag: int,
    state: Path | None,
    as_json: bool,
    **patterns: Any,
) -> None:
    """Poll Kafka and judge groups by Burrow's rules.

    The command does not need Burrow. It runs until Ctrl-C. Without --post, it prints the verdicts. A verdict needs a
    window of polls. A full window has ten polls. A group gets its first verdict when half of its window is full, or
    when its offsets did not move for a whole window.

    The command needs confluent-kafka: pip install 'karrot-burrow[kafka]'
    """
    from karrot import logs
    from karrot.burrow.notification_rules import NameFilter
    from karrot.clock import SystemClock
    from karrot.watch.client_process import ClientProcess
    from karrot.watch.cluster_interface import connect
    from karrot.watch.poll_loop import Watcher, run
    from karrot.watch.saved_state import file_keeper

    stop = threading.Event()
    errors: list[OSError] = []
    printed = partial(_print, _as_json if as_json else _as_table, stop, errors)
    send = printed if post is None else _poster(post, user)
    kafka = ClientProcess(partial(connect, bootstrap_servers, command_config), stop)
    valid(kafka.check)
    watcher = Watcher(
        name=cluster,
        cluster=kafka,
        clock=SystemClock(),
        send=send,
        keeper=None if state is None else file_keeper(state),
        interval=interval,
        groups=NameFilter.of(patterns["groups"], patterns["exclude_groups"]),
        topics=NameFilter.of(patterns["topics"], patterns["exclude_topics"]),
        offsets_elsewhere=patterns["offsets_elsewhere"],
        allowed_lag=allowed_lag,
    )
    logs.configure("INFO", sys.stderr)
    end_on_signals(stop)
    run(watcher, stop)
    if errors:
        raise errors[0]


def _print(
    show: Callable[["PollOutcome"], list[str]],
    stop: threading.Event,
    errors: list[OSError],
    outcome: "PollOutcome",
    _age_ms: Callable[[], int],
) -> None:
    """Print the outcome of a poll. If standard output fails, end the watch, and put the error into ``errors``."""
    try:
        print_lines(show(outcome))
    except OSError as error:
        errors.append(error)
        stop.set()


def _as_json(outcome: "PollOutcome") -> list[str]:
    from karrot.burrow.payload import to_wire

    return [to_wire(event).decode() for event in outcome.events]


def _as_table(outcome: "PollOutcome") -> list[str]:
    """Make a line per group, and a last line with the poll's time, the sums, and the number of unjudged groups."""
    verdicts = {event.consumer: event for event in outcome.events}
    rows: list[dict[str, Any]] = []
    for group in sorted(outcome.groups, key=lambda each: each.consumer):
        event = verdicts.get(group.consumer)
        row = {"group": group.consumer, "status": event and event.shown_status, "lag": event and event.total_lag}
        row |= {"max_lag": event and event.max_lag and event.max_lag.current_lag}
        rows.append(msgspec.structs.asdict(group) | row)
    waiting = {group.consumer for group in outcome.groups if group.state != "Dead"} - verdicts.keys()
    without_offsets = len(waiting.intersection(outcome.without_offsets))
    parts = (
        f"{clock(outcome.polled_at_ms / 1000)} UTC: {counted_plain(len(rows), 'group')}",
        f"lag {sum_of_known(outcome.events)}" if outcome.events else "",
        tally(event.shown_status for event in outcome.events),
        f"{without_offsets} without a committed offset" if without_offsets else "",
        f"{unjudged} not judged yet" if (unjudged := len(waiting) - without_offsets) else "",
        f"{outcome.others} more not watched yet (share groups or other kinds)" if outcome.others else "",
    )
    return [*PrintedTable(_COLUMNS, rows).lines(), "; ".join(filter(None, parts)), ""]


def _poster(url: str, user: str | None) -> "Send":
    from karrot import render
    from karrot.watch.poll_loop import PostSink

    return PostSink(valid(partial(render.webhook, url)), valid(partial(credentials, user))).send
