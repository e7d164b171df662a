"""Reads consumer groups from Burrow's REST API or Kafka's admin API, behind one interface."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.options import value_of
from karrot.cli.table import shown
from karrot.text import counted_plain, some

if TYPE_CHECKING:
    from karrot.burrow.client import Burrow, BurrowError
    from karrot.event import LagEvent
    from karrot.eventlog.watched_groups import GroupHealth
    from karrot.watch.cluster_reader import ClusterReader, ClusterSnapshot


_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The verdicts on groups, sorted by group, and an error for each group whose request failed.

    ``teller`` names the source of the verdicts. ``healths`` has Kafka's data about the groups, if Kafka was asked.
    Without Burrow, the verdicts have a lag but no status. Rebalances are counted between two requests to Kafka, so the
    first request gives no count. ``others`` are groups of Kafka that are not consumer groups. ``gone`` are groups of
    Burrow that Kafka does not list.
    """

    cluster: str
    verdicts: "tuple[LagEvent, ...]"
    failed: Mapping[str, Exception]
    named: bool = False
    is_ready: bool = True
    teller: str = "Burrow"
    healths: "Mapping[str, GroupHealth] | None" = None
    counts_rebalances: bool = False
    others: Collection[str] = ()
    gone: Collection[str] = ()
    burrow_url: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether Burrow lists no group, or a request failed that can succeed later or with another group name."""
        from karrot.burrow.client import Unaddressable

        lists_none = self.teller == "Burrow" and not self.verdicts and not self.failed
        return lists_none or any(self.named or not isinstance(error, Unaddressable) for error in self.failed.values())

    @property
    def notes(self) -> list[str]:
        """Sentences about the groups that the table does not show."""
        said = [f"{group!a} is not shown: {error}" for group, error in self.failed.items()]
        if not self.verdicts and not self.failed:
            said.append(
                f"{self.teller} has no group in {shown(self.cluster)}"
                + ("" if self.is_ready else f": {self.teller} is still starting")
            )
        if self.others and not self.named:
            number, names = counted_plain(len(self.others), "group"), some([*map(shown, sorted(self.others))])
            said.append(f"{number} not watched yet (share groups or other kinds): {names}")
        if self.gone:
            said.append(
                f"Kafka does not list {some([*map(shown, self.gone)])}: deleted, on other brokers, or hidden by ACLs. "
                "Before Kafka 4, Burrow can miss a deletion. To make it forget the group, run "
                f"curl -X DELETE {self.burrow_url}/v3/kafka/{shown(self.cluster)}/consumer/GROUP"
            )
        return said


def cluster_of(burrow: "Burrow", wanted: str | None) -> str:
    """Burrow's only cluster, or the cluster with the wanted name. Burrow writes names in lower case."""
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
    """Ask Burrow for the verdicts on these groups, or on all groups. A few requests run at the same time.

    A group that disappears before its request is left out. If the user gave its name, an error is shown instead.
    """
    from karrot.burrow.client import BurrowError, NotFound

    names = tuple(groups) or burrow.consumers(cluster)
    question = burrow.lag if with_all_partitions else burrow.status
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda group: _answer(question, cluster, group), names))
    failed = {group: said for group, said in zip(names, answers, strict=True) if isinstance(said, BurrowError)}
    return GroupAnswers(
        cluster,
        tuple(said for said in answers if not isinstance(said, BurrowError)),
        failed if groups else {group: said for group, said in failed.items() if not isinstance(said, NotFound)},
        named=bool(groups),
        is_ready=bool(names) or _is_ready(burrow),
        burrow_url=burrow.url,
    )


def _answer(question: "Callable[[str, str], LagEvent]", cluster: str, group: str) -> "LagEvent | BurrowError":
    from karrot.burrow.client import BurrowError

    try:
        return question(cluster, group)
    except BurrowError as error:
        return error


def _is_ready(burrow: "Burrow") -> bool:
    from karrot.burrow.client import UnknownCall

    try:
        return burrow.ready()
    except UnknownCall:
        return True  # Burrow before v1.3.5 does not report whether it is ready


def cluster_reader(bootstrap: str, properties: Path | None, cluster: str | None) -> "ClusterReader":
    """A reader of the Kafka cluster at these addresses. ``cluster`` is the cluster's name, by default the addresses."""
    from karrot.settings import types
    from karrot.watch.cluster_interface import connect
    from karrot.watch.cluster_reader import ClusterReader

    brokers = value_of(types.brokers, "--bootstrap-servers", bootstrap)
    return ClusterReader(cluster or ",".join(brokers), valid(partial(connect, brokers, properties)))


def ask_kafka(kafka: "ClusterReader", groups: Collection[str]) -> GroupAnswers:
    """Ask Kafka about these groups, or about all groups."""
    from karrot.watch.cluster_interface import ClusterError

    snapshot = _snapshot(kafka, groups)
    return GroupAnswers(
        kafka.name,
        snapshot.lags,
        {group: ClusterError(*failure) for group, failure in snapshot.failures.items()},
        named=bool(groups),
        teller="Kafka",
        healths=snapshot.healths,
        counts_rebalances=snapshot.counts_rebalances,
        others=snapshot.others,
    )


def beside_burrow(asked: GroupAnswers, kafka: "ClusterReader") -> GroupAnswers:
    """Add Kafka's data about the same groups to Burrow's answers. A group that Kafka should list is marked."""
    from karrot.event import has_burrow_name
    from karrot.eventlog.watched_groups import GroupHealth
    from karrot.watch.cluster_reader import NOT_LISTED

    groups = {event.consumer for event in asked.verdicts}
    if not groups:
        return asked
    snapshot = _snapshot(kafka, groups)
    gone = sorted(each for each in groups if snapshot.failures.get(each) == NOT_LISTED and not has_burrow_name(each))
    missing = {group: GroupHealth(group, "not in Kafka", None, None, 0, None, None) for group in gone}
    healths = {**snapshot.healths, **missing}
    return replace(asked, healths=healths, gone=gone, counts_rebalances=snapshot.counts_rebalances)


def _snapshot(kafka: "ClusterReader", groups: Collection[str]) -> "ClusterSnapshot":
    from karrot.watch.cluster_interface import ClusterError

    try:
        return kafka.read(int(time.time() * 1000), groups)
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error
