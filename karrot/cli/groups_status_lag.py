"""``karrot groups``, ``status`` and ``lag``: print consumer groups from Burrow's REST API."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused
from karrot.cli.options import json_option, option_set, url_option
from karrot.cli.print_table import UNKNOWN, Column, PrintedTable, cell, json_line, print_lines, safe, shown
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow
    from karrot.event import LagEvent, PartitionLag
    from karrot.http_client import RequestFailed


_AT_ONCE = 8


_group_options = option_set(
    url_option(
        "--burrow",
        "url",
        required=True,
        envvar="KARROT_BURROW_URL",
        help="Address of Burrow, such as http://burrow:8000.  [default: KARROT_BURROW_URL]",
    ),
    click.option("--cluster", help="Name of the cluster. Required if Burrow has several clusters."),
    click.option("--group", "groups", multiple=True, help="Show only this group. Repeatable.  [default: all groups]"),
    json_option("Print one line of JSON instead of tables."),
)


@click.command()
@_group_options
def groups(**asked: Any) -> None:
    """List the consumer groups with their status, lag and skew.

    Each line shows the status, the lag, and how much of the lag (in percent) is on the partition with the largest lag.

    The exit code is 1 if Burrow does not answer, does not know the given cluster or group, or lists no group. It is 2
    for wrong options.
    """
    _run(groups_table, with_all_partitions=False, **asked)


@click.command(short_help="Print Burrow's verdicts and the bad partitions.")
@_group_options
def status(**asked: Any) -> None:
    """Print Burrow's verdicts, with the partitions that are not OK.

    The exit codes are those of `karrot groups`. A bad verdict does not change the exit code.
    """
    _run(partition_tables, with_all_partitions=False, **asked)


@click.command()
@_group_options
def lag(**asked: Any) -> None:
    """Print the lag of every partition, as Burrow reports it.

    The last line shows the total lag, and how much of it (in percent) is on the partition with the largest lag.

    The exit codes are those of `karrot groups`.
    """
    _run(partition_tables, with_all_partitions=True, **asked)


def _run(
    table: Callable[[str, "Sequence[LagEvent]"], Iterator[str]],
    *,
    url: str,
    cluster: str | None,
    groups: tuple[str, ...],
    as_json: bool,
    with_all_partitions: bool,
) -> None:
    """Ask Burrow for the verdicts, some at the same time, and print them with ``table`` or as JSON."""
    from karrot.burrow.client import Burrow, NotFound, Unaddressable
    from karrot.http_client import RequestFailed

    with Burrow(url) as burrow:
        try:
            cluster = cluster_of(burrow, cluster)
            names = groups or burrow.consumers(cluster)
            question = partial(burrow.lag if with_all_partitions else burrow.status, cluster)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                answers = list(pool.map(partial(_answer, question), names))
            is_starting = not names and burrow.ready() is False
        except RequestFailed as error:
            raise NotDone(str(error)) from error
    verdicts = [answer for answer in answers if not isinstance(answer, RequestFailed)]
    failed = {group: error for group, error in zip(names, answers, strict=True) if isinstance(error, RequestFailed)}
    if not groups:  # Burrow may have deleted a group since it listed the groups
        failed = {group: error for group, error in failed.items() if not isinstance(error, NotFound)}
    print_lines([_json(cluster, verdicts, failed)] if as_json else table(cluster, verdicts))
    if not verdicts and not failed:
        raise NotDone(f"Burrow has no group in {shown(cluster)}{': Burrow is still starting' if is_starting else ''}")
    notes = [f"{group!a} is not shown: {error}" for group, error in failed.items()]
    if any(groups or not isinstance(error, Unaddressable) for error in failed.values()):
        raise NotDone("\n".join(notes))
    for note in notes:
        click.echo(f"karrot: {note}", err=True)


def cluster_of(burrow: "Burrow", wanted: str | None) -> str:
    """Return Burrow's only cluster, or the cluster ``wanted``. Burrow writes cluster names in lower case."""
    clusters = burrow.clusters()
    if wanted is None and len(clusters) > 1:
        raise Refused(f"Burrow has {len(clusters)} clusters: give --cluster with one of {_listed(clusters)}")
    if not clusters:
        raise NotDone(f"{burrow.url}: Burrow has no cluster")
    cluster = clusters[0] if wanted is None else wanted if wanted in clusters else wanted.lower()
    if cluster not in clusters:
        raise NotDone(f"{burrow.url}: Burrow has no cluster {wanted!r}; its clusters: {_listed(clusters)}")
    return cluster


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names))


def _answer(question: "Callable[[str], LagEvent]", group: str) -> "LagEvent | RequestFailed":
    from karrot.http_client import RequestFailed

    try:
        return question(group)
    except RequestFailed as error:
        return error


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


_GROUPS = (
    Column("GROUP", "group"),
    Column("STATUS", "status"),
    Column("LAG", "lag", is_number=True),
    Column("SHARE", "worst", lambda worst: _percent(worst and worst["share"]), is_number=True),
    Column("WORST", "worst", lambda worst: f"{safe(worst['topic'])}-{worst['partition']}" if worst else UNKNOWN),
    Column("PARTITIONS", "partition_count", is_number=True),
    Column("COMPLETE", "complete", _percent, is_number=True),
)
OFFSETS = (
    Column("GROUP", "group"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", is_number=True),
    Column("CURRENT-OFFSET", "current_offset", is_number=True),
    Column("LOG-END-OFFSET", "log_end_offset", is_number=True),
    Column("LAG", "lag", is_number=True),
)
"""The columns of Kafka's ``kafka-consumer-groups --describe``, without the columns about the owner."""

_PARTITIONS = (*OFFSETS, Column("STATUS", "status"), Column("OWNER", "owner", lambda owner: cell(owner or None)))


def groups_table(cluster: str, verdicts: "Sequence[LagEvent]") -> Iterator[str]:
    """Yield a line for each group, and then a line with the totals."""
    if verdicts:
        yield from PrintedTable(_GROUPS, [_group_fields(event) for event in verdicts]).lines()
        groups, lag = counted_plain(len(verdicts), "group"), sum_of_known(verdicts)
        yield f"{safe(cluster)}: {groups}, lag {lag}; {tally(event.status_text for event in verdicts)}"


def sum_of_known(verdicts: "Iterable[LagEvent]") -> str:
    """Format the sum of the known lags (or a dash), and the number of groups with an unknown lag."""
    lags = [event.total_lag for event in verdicts]
    unknown = lags.count(None)
    known = cell(sum(lag for lag in lags if lag is not None) if unknown < len(lags) else None)
    return f"{known} without {counted_plain(unknown, 'group')}" if unknown else known


def tally(words: Iterable[str]) -> str:
    """Format how often each word occurs, for example ``2 ERR, 5 OK``."""
    return ", ".join(f"{number} {safe(word)}" for word, number in sorted(Counter(words).items()) if word)


def partition_tables(_cluster: str, verdicts: "Sequence[LagEvent]") -> Iterator[str]:
    """Yield, for each group, a table with columns as in ``kafka-consumer-groups``, and a line with the totals."""
    for at, event in enumerate(verdicts):
        if at and (event.partitions or verdicts[at - 1].partitions):
            yield ""
        if event.partitions:
            rows = [{"group": event.consumer} | _partition_fields(each) for each in event.partitions]
            yield from PrintedTable(_PARTITIONS, rows).lines()
        yield _sum(event)


def _sum(event: "LagEvent") -> str:
    worst = event.max_lag
    line = f"{safe(event.consumer)}: {safe(event.status_text)}, lag {cell(event.total_lag)}"
    if worst is not None and event.total_lag:
        line += f", {_percent(_share_of(event))} of it in {safe(worst.topic)}-{worst.partition}"
    if event.partition_count is not None:
        line += f"; {counted_plain(event.partition_count, 'partition')}"
    return line if event.complete in (None, 1) else f"{line}, {event.complete:.0%} complete"


def _json(cluster: str, verdicts: "Sequence[LagEvent]", failed: "Mapping[str, RequestFailed]") -> str:
    unknown = [{"group": group, "error": str(error)} for group, error in failed.items()]
    return json_line({"cluster": cluster, "groups": [_group_fields(event) for event in verdicts], "failed": unknown})


def _group_fields(event: "LagEvent") -> dict[str, Any]:
    worst = event.max_lag
    return {
        "group": event.consumer,
        "status": event.status_text or None,
        "lag": event.total_lag,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "worst": worst and _partition_fields(worst) | {"share": _share_of(event)},
        "partitions": [_partition_fields(each) for each in event.partitions],
    }


def _partition_fields(one: "PartitionLag") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "current_offset": one.end and one.end.offset,
        "log_end_offset": one.log_end_offset,
        "lag": one.current_lag,
        "status": one.status_text or None,
        "owner": one.owner,
        "client_id": one.client_id,
    }


def _share_of(event: "LagEvent") -> float | None:
    """Return which share of a group's lag is on the partition with the largest lag; 1/n for n equal lags."""
    if event.max_lag is None or event.max_lag.current_lag is None or not event.total_lag:
        return None
    return event.max_lag.current_lag / event.total_lag
