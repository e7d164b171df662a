"""Asks Kafka for the states, members and offsets of groups. Kafka has no verdicts."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from karrot.cli.errors import NotDone, valid
from karrot.cli.groups.group_answers import GroupAnswers
from karrot.cli.options import value_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from karrot.watch import ClusterReader, ClusterSnapshot


def cluster_reader(bootstrap: str, properties: Path | None, cluster: str | None) -> "ClusterReader":
    """A reader of the Kafka cluster at these addresses. They are its name if it has no other."""
    from karrot.settings import types
    from karrot.watch import ClusterReader, connect

    brokers = value_of(types.brokers, "--bootstrap-servers", bootstrap)
    return ClusterReader(cluster or ",".join(brokers), valid(partial(connect, brokers, properties)))


def ask_kafka(kafka: "ClusterReader", groups: "Collection[str]") -> GroupAnswers:
    """Ask Kafka about these groups, or about all."""
    from karrot.watch import ClusterError

    snapshot = _read(kafka, groups)
    return GroupAnswers(
        kafka.name,
        snapshot.lags,
        {group: ClusterError(*failure) for group, failure in snapshot.failures.items()},
        named=bool(groups),
        teller="Kafka",
        healths=snapshot.healths,
        counts_rebalances=snapshot.counts_rebalances,
    )


def beside_burrow(asked: GroupAnswers, kafka: "ClusterReader") -> GroupAnswers:
    """Burrow's answers, with what Kafka says about the same groups."""
    groups = {event.consumer for event in asked.verdicts}
    if not groups:
        return asked
    snapshot = _read(kafka, groups)
    return replace(asked, healths=snapshot.healths, counts_rebalances=snapshot.counts_rebalances)


def _read(kafka: "ClusterReader", groups: "Collection[str]") -> "ClusterSnapshot":
    from karrot.watch import ClusterError

    try:
        return kafka.read(int(time.time() * 1000), groups)
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error
