"""Asks Burrow's reference model for what only tests need: one partition's verdict, and a topic's deletion."""

from karrot.burrow.rules import TrackedPartition, evaluate_group
from karrot.event import PartitionLag
from support.burrow.burrow_storage import Storage


def evaluate_partition(
    tracked: TrackedPartition, now: int, *, allowed_lag: int = 0, minimum_complete: float = 0.0
) -> PartitionLag:
    """One partition as Burrow reports it."""
    event = evaluate_group(
        "c", "g", [tracked], now * 1000, show_all=True, allowed_lag=allowed_lag, minimum_complete=minimum_complete
    )
    return event.partitions[0]


def delete_topic(storage: Storage, topic: str) -> None:
    """Forget a topic, as Burrow does. The groups that read it stay, even without any partition."""
    storage._broker.pop(topic, None)
    for group in storage._groups.values():
        group.topics.pop(topic, None)
