"""What Kafka itself says of groups: states, members and offsets, but no verdicts."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from karrot.cli.errors import NotDone, valid
from karrot.cli.groups.burrow_answers import GroupAnswers
from karrot.cli.options import value_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from karrot.watch import ClusterSnapshot, Onlooker

__all__ = ["ask_kafka", "beside_burrow", "onlooker"]


def onlooker(bootstrap: str, properties: Path | None, cluster: str | None) -> "Onlooker":
    """Who looks at the cluster at these addresses, which is called after them where it has no name."""
    from karrot.settings import types
    from karrot.watch import Onlooker, connect

    brokers = value_of(types.brokers, "--bootstrap-servers", bootstrap)
    return Onlooker(cluster or ",".join(brokers), valid(partial(connect, brokers, properties)))


def ask_kafka(kafka: "Onlooker", groups: "Collection[str]") -> GroupAnswers:
    """How all groups stand, or some."""
    from karrot.watch import ClusterError

    standing = _looked(kafka, groups)
    return GroupAnswers(
        kafka.name,
        standing.lags,
        {group: ClusterError(*failure) for group, failure in standing.failures.items()},
        named=bool(groups),
        teller="Kafka",
        healths=standing.healths,
        counts_rebalances=standing.counts_rebalances,
    )


def beside_burrow(asked: GroupAnswers, kafka: "Onlooker") -> GroupAnswers:
    """Burrow's answers with what Kafka says of the same groups."""
    groups = {event.consumer for event in asked.verdicts}
    if not groups:
        return asked
    standing = _looked(kafka, groups)
    return replace(asked, healths=standing.healths, counts_rebalances=standing.counts_rebalances)


def _looked(kafka: "Onlooker", groups: "Collection[str]") -> "ClusterSnapshot":
    from karrot.watch import ClusterError

    try:
        return kafka.look(int(time.time() * 1000), groups)
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error
