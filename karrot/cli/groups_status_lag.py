"""``karrot groups``, ``status`` and ``lag``: print consumer groups from Burrow, from Kafka or from both."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.options import (
    Command,
    brokers_option,
    client_properties_option,
    follow_option,
    option_set,
    read_seconds,
    url_option,
)
from karrot.cli.print_table import (
    UNKNOWN,
    Column,
    PrintedTable,
    cell,
    json_line,
    print_lines,
    safe,
    shown,
    terminal_width,
)
from karrot.text import counted_plain, some

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow
    from karrot.event import LagEvent, PartitionLag
    from karrot.eventlog.watch_data_of_groups import GroupHealth
    from karrot.http_client import RequestFailed
    from karrot.watch.cluster_reader import ClusterReader, ClusterSnapshot


_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The verdicts on groups, sorted by group, and an error for each group whose request failed.

    ``kafka`` is ``None`` if Kafka was not asked. Without Burrow, ``burrow_url`` is an empty string, and the verdicts
    have a lag but no status. ``named`` says whether the user named the groups. ``gone`` are groups that Burrow lists
    and Kafka does not list.
    """

    cluster: str
    verdicts: "tuple[LagEvent, ...]"
    failed: Mapping[str, Exception]
    named: bool = False
    is_ready: bool = True
    burrow_url: str = ""
    kafka: "ClusterSnapshot | None" = None
    gone: Collection[str] = ()

    @property
    def has_failed(self) -> bool:
        """Whether Burrow lists no group, or a request failed that may succeed later or for another group."""
        from karrot.burrow.client import Unaddressable

        if not self.verdicts and not self.failed:
            return bool(self.burrow_url)
        return any(self.named or not isinstance(error, Unaddressable) for error in self.failed.values())

    @property
    def notes(self) -> list[str]:
        """Return sentences about the groups that the table does not show."""
        said = [f"{group!a} is not shown: {error}" for group, error in self.failed.items()]
        if not self.verdicts and not self.failed:
            starting = "" if self.is_ready else ": Burrow is still starting"
            said.append(f"{'Burrow' if self.burrow_url else 'Kafka'} has no group in {shown(self.cluster)}{starting}")
        if self.kafka and self.kafka.others and not self.burrow_url and not self.named:
            others = self.kafka.others
            number, names = counted_plain(len(others), "group"), some([*map(shown, sorted(others))])
            said.append(f"{number} not watched yet (share groups or other kinds): {names}")
        if self.gone:
            said.append(
                f"Kafka does not list {some([*map(shown, self.gone)])}: deleted, on other brokers, or hidden by ACLs. "
                "Before Kafka 4, Burrow can miss a deletion. To make it forget the group, run "
                f"curl -X DELETE {self.burrow_url}/v3/kafka/{shown(self.cluster)}/consumer/GROUP"
            )
        return said


def _group_options(without_burrow: str) -> Callable[[Command], Command]:
    """Return the shared options. ``without_burrow`` is the help text on --bootstrap-servers without --burrow."""
    return option_set(
        url_option(
            "--burrow",
            "url",
            envvar="KARROT_BURROW_URL",
            help="Address of Burrow, such as http://burrow:8000.  [default: KARROT_BURROW_URL]",
        ),
        brokers_option(
            "bootstrap",
            help=f"Kafka brokers. The output then has the state, members and coordinator of groups. {without_burrow}",
        ),
        client_properties_option(help="With --bootstrap-servers: a file with client properties, as for karrot watch."),
        click.option("--cluster", help="Name of the cluster. Required if Burrow has several clusters."),
        click.option(
            "--group", "groups", multiple=True, help="Show only this group. Repeatable.  [default: all groups]"
        ),
        follow_option("Repeat until Ctrl-C.", default=False),
        click.option(
            "--every",
            "interval",
            default="5s",
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
    bootstrap: Sequence[str] | None,
    command_config: Path | None,
    cluster: str | None,
    groups: tuple[str, ...],
    follow: bool,
    interval: float,
    as_json: bool,
    with_all_partitions: bool,
) -> None:
    """Ask Burrow, Kafka or both, and print the answer with ``table``, once or until Ctrl-C."""
    from karrot.burrow.client import Burrow
    from karrot.http_client import RequestFailed

    kafka = None if bootstrap is None else cluster_reader(bootstrap, command_config, cluster)
    show = groups_json if as_json else table

    def look(burrow: "Burrow | None") -> GroupAnswers:
        if burrow is None and kafka is not None:
            return ask_kafka(kafka, groups)
        if burrow is None:
            raise Refused("no source is given: give Burrow's address as --burrow, or brokers as --bootstrap-servers")
        try:
            asked = ask(burrow, cluster_of(burrow, cluster), groups, with_all_partitions=with_all_partitions)
        except RequestFailed as error:
            raise NotDone(str(error)) from error
        return asked if kafka is None else beside_burrow(asked, kafka)

    with nullcontext() if url is None else Burrow(url) as burrow, suppress(*[KeyboardInterrupt] if follow else []):
        while follow:
            try:
                asked = look(burrow)
                lines, notes = list(show(asked)), asked.notes
            except NotDone as error:
                lines, notes = [], [error.message]
            click.clear()
            _print(lines, notes)
            time.sleep(interval)
        asked = look(burrow)
        if asked.has_failed:
            print_lines(show(asked))
            raise NotDone("\n".join(asked.notes))
        _print(show(asked), asked.notes)


def _print(lines: Iterable[str], notes: Iterable[str]) -> None:
    print_lines(lines)
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


def ask(burrow: "Burrow", cluster: str, groups: Sequence[str], *, with_all_partitions: bool) -> GroupAnswers:
    """Ask Burrow for the verdicts on ``groups``, or on all groups. A few requests run at the same time.

    A group that is deleted before its request is left out. If the user named the group, an error is shown instead.
    """
    from karrot.burrow.client import NotFound
    from karrot.http_client import RequestFailed

    names = tuple(groups) or burrow.consumers(cluster)
    question = burrow.lag if with_all_partitions else burrow.status
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda group: _answer(question, cluster, group), names))
    failed = {group: said for group, said in zip(names, answers, strict=True) if isinstance(said, RequestFailed)}
    return GroupAnswers(
        cluster,
        tuple(said for said in answers if not isinstance(said, RequestFailed)),
        failed if groups else {group: said for group, said in failed.items() if not isinstance(said, NotFound)},
        named=bool(groups),
        is_ready=bool(names) or burrow.ready() is not False,
        burrow_url=burrow.url,
    )


def _answer(question: "Callable[[str, str], LagEvent]", cluster: str, group: str) -> "LagEvent | RequestFailed":
    from karrot.http_client import RequestFailed

    try:
        return question(cluster, group)
    except RequestFailed as error:
        return error


def cluster_reader(brokers: Sequence[str], properties: Path | None, cluster: str | None) -> "ClusterReader":
    """Return a reader of a Kafka cluster. ``cluster`` is the cluster's name, by default the brokers' addresses."""
    from karrot.watch.cluster_interface import connect
    from karrot.watch.cluster_reader import ClusterReader

    return ClusterReader(cluster or ",".join(brokers), valid(partial(connect, brokers, properties)))


def ask_kafka(kafka: "ClusterReader", groups: Collection[str]) -> GroupAnswers:
    from karrot.watch.cluster_interface import ClusterError

    snapshot = _snapshot(kafka, groups)
    failed = {group: ClusterError(*failure) for group, failure in snapshot.failures.items()}
    return GroupAnswers(kafka.name, snapshot.lags, failed, named=bool(groups), kafka=snapshot)


def beside_burrow(asked: GroupAnswers, kafka: "ClusterReader") -> GroupAnswers:
    """Add Kafka's data about the same groups to Burrow's answers. ``gone`` gets the groups missing in Kafka."""
    from karrot.event import has_burrow_name
    from karrot.eventlog.watch_data_of_groups import GroupHealth
    from karrot.watch.cluster_reader import NOT_LISTED

    groups = {event.consumer for event in asked.verdicts}
    if not groups:
        return asked
    snapshot = _snapshot(kafka, groups)
    gone = sorted(each for each in groups if snapshot.failures.get(each) == NOT_LISTED and not has_burrow_name(each))
    missing = {group: GroupHealth(group, "not in Kafka", None, None, 0, None, None) for group in gone}
    return replace(asked, kafka=snapshot._replace(healths={**snapshot.healths, **missing}), gone=gone)


def _snapshot(kafka: "ClusterReader", groups: Collection[str]) -> "ClusterSnapshot":
    from karrot.watch.cluster_interface import ClusterError

    try:
        return kafka.read(int(time.time() * 1000), groups)
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


_GROUPS = (
    Column("GROUP", "group", may_be_cut=True),
    Column("STATUS", "status"),
    Column("LAG", "lag", is_number=True),
    Column("SHARE", "worst", lambda worst: _percent(worst and worst["share"]), is_number=True),
    Column(
        "WORST",
        "worst",
        lambda worst: f"{safe(worst['topic'])}-{worst['partition']}" if worst else UNKNOWN,
        may_be_cut=True,
        goes=6,
    ),
    Column("PARTITIONS", "partition_count", is_number=True, goes=1),
    Column("COMPLETE", "complete", _percent, is_number=True, goes=2),
)
KAFKA = (
    Column("STATE", "state", goes=9),
    Column("MEMBERS", "members", is_number=True, goes=8),
    Column("COORDINATOR", "coordinator", is_number=True, goes=5),
    Column("REBALANCES", "rebalances", is_number=True, goes=7),
    Column("LOST", "messages_lost", is_number=True, goes=4),
    Column("MARGIN", "retention_margin", is_number=True, goes=3),
)
"""The columns with data from Kafka, which show the fields of `health_fields`."""

_HEALTH = (*(each.field for each in KAFKA), "beyond_end", "uncommitted")

OFFSETS = (
    Column("GROUP", "group", may_be_cut=True, goes=4),
    Column("TOPIC", "topic", may_be_cut=True),
    Column("PARTITION", "partition", is_number=True),
    Column("CURRENT-OFFSET", "current_offset", is_number=True, goes=3),
    Column("LOG-END-OFFSET", "log_end_offset", is_number=True, goes=2),
    Column("LAG", "lag", is_number=True),
)
"""The columns of Kafka's ``kafka-consumer-groups --describe``, without the columns about the owner."""

_PARTITIONS = (
    *OFFSETS,
    Column("STATUS", "status"),
    Column("OWNER", "owner", lambda owner: cell(owner or None), may_be_cut=True, goes=1),
)


def groups_table(asked: GroupAnswers) -> Iterator[str]:
    """Yield a line for each group, and then a line with the totals."""
    if not asked.verdicts:
        return
    columns = (*_GROUPS, *KAFKA) if asked.kafka else _GROUPS
    yield from PrintedTable(columns, [_group_fields(asked, event) for event in asked.verdicts]).lines(terminal_width())
    groups, lag = len(asked.verdicts), sum_of_known(asked.verdicts)
    told = [tally(event.status_text for event in asked.verdicts)]
    if asked.kafka:
        told.append(tally(health.state for health in asked.kafka.healths.values()))
    yield "; ".join([f"{safe(asked.cluster)}: {counted_plain(groups, 'group')}, lag {lag}", *filter(None, told)])


def sum_of_known(verdicts: "Iterable[LagEvent]") -> str:
    """Format the sum of the known lags (or a dash), and the number of groups with an unknown lag."""
    lags = [event.total_lag for event in verdicts]
    unknown = lags.count(None)
    known = cell(sum(lag for lag in lags if lag is not None) if unknown < len(lags) else None)
    return f"{known} without {counted_plain(unknown, 'group')}" if unknown else known


def tally(words: Iterable[str]) -> str:
    """Format how often each word occurs, for example ``2 ERR, 5 OK``."""
    return ", ".join(f"{number} {safe(word)}" for word, number in sorted(Counter(words).items()) if word)


def partition_tables(asked: GroupAnswers) -> Iterator[str]:
    """Yield, for each group, a table with columns as in ``kafka-consumer-groups``, and a line with the totals."""
    width = terminal_width()
    for at, event in enumerate(asked.verdicts):
        if at and (event.partitions or asked.verdicts[at - 1].partitions):
            yield ""
        if event.partitions:
            rows = [{"group": event.consumer} | _partition_fields(each) for each in event.partitions]
            yield from PrintedTable(_PARTITIONS, rows).lines(width)
        yield _sum(event) + _stability(asked, event)


def _sum(event: "LagEvent") -> str:
    worst = event.max_lag
    status = f"{safe(event.status_text)}, " if event.status_text else ""
    told = f"{safe(event.consumer)}: {status}lag {cell(event.total_lag)}"
    if worst is not None and event.total_lag:
        told += f", {_percent(_share_of(event))} of it in {safe(worst.topic)}-{worst.partition}"
    if event.partition_count is not None:
        told += f"; {counted_plain(event.partition_count, 'partition')}"
    return told if event.complete in (None, 1) else f"{told}, {event.complete:.0%} complete"


def _stability(asked: GroupAnswers, event: "LagEvent") -> str:
    """Format Kafka's data about a group, which end the last line of output for this group."""
    health = asked.kafka.healths.get(event.consumer) if asked.kafka else None
    if asked.kafka is None or health is None:
        return ""
    invisible = (
        "no committed offset is visible: nothing was committed yet, the offsets expired, or Karrot has no right "
        "Describe on the topics"
    )
    without = f"{counted_plain(health.uncommitted or 0, 'partition')} without a committed offset"
    told = (
        health.state,
        "" if health.members is None else counted_plain(health.members, "member"),
        "" if health.coordinator is None else f"coordinator {health.coordinator}",
        counted_plain(health.rebalances, "rebalance") if asked.kafka.counts_rebalances else "",
        f"{health.messages_lost} lost unread" if health.messages_lost else "",
        without if health.uncommitted else "" if event.partitions or event.status_text else invisible,
        f"{counted_plain(health.beyond_end, 'partition')} with an offset past the log end" if health.beyond_end else "",
    )
    return "; " + ", ".join(filter(None, told))


def groups_json(asked: GroupAnswers) -> Iterator[str]:
    failed = [{"group": group, "error": str(error)} for group, error in asked.failed.items()]
    groups = [_group_fields(asked, event) for event in asked.verdicts]
    yield json_line({"cluster": asked.cluster, "groups": groups, "failed": failed})


def _group_fields(asked: GroupAnswers, event: "LagEvent") -> dict[str, Any]:
    """Return the JSON fields of a group. The fields with Kafka's data are left out if Kafka was not asked."""
    worst = event.max_lag
    fields = {
        "group": event.consumer,
        "status": event.status_text or None,
        "lag": event.total_lag,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "worst": worst and _partition_fields(worst) | {"share": _share_of(event)},
        "partitions": [_partition_fields(each) for each in event.partitions],
    }
    if asked.kafka is None:
        return fields
    health = asked.kafka.healths.get(event.consumer)
    return fields | health_fields(health, counts_rebalances=asked.kafka.counts_rebalances)


def health_fields(health: "GroupHealth | None", *, counts_rebalances: bool = True) -> dict[str, Any]:
    """Return the JSON fields with Kafka's data about a group. Without data, the fields are ``None``."""
    fields = {name: getattr(health, name, None) for name in _HEALTH}
    return fields if counts_rebalances else fields | {"rebalances": None}


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
