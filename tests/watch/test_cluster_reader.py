"""A single poll of a cluster, without a history."""

import pytest

from karrot.event import LagEvent, PartitionLag, TopicPartition
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.watch.cluster_interface import ClusterError, Failure
from karrot.watch.cluster_reader import ClusterReader
from support.kafka.in_memory_kafka import InMemoryKafka, make_member

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("gone", 0)
DENIED = Failure("group_authorization_failed", "Broker: Group authorization failed")


def kafka() -> InMemoryKafka:
    simulated = InMemoryKafka(ends={A: 100, B: 50, C: 1}, starts={A: 0, B: 30})
    simulated.put("billing", {A: 60, B: 20, C: 0}, make_member(A, B))
    simulated.put("idle", {})
    simulated.failures[C] = Failure("unknown_topic_or_part", "there is no such partition")
    return simulated


def shown(event: LagEvent) -> list[tuple[str, int, int | None, str]]:
    return [(each.topic, each.partition, each.current_lag, each.owner) for each in event.partitions]


def test_lags_members_and_losses_by_retention_are_known_at_once_but_verdicts_are_not() -> None:
    snapshot = ClusterReader("prod", kafka()).read(now_ms=7)
    billing, idle = snapshot.lags
    assert (billing.consumer, billing.status_text, billing.total_lag, billing.observed_at_ms) == ("billing", "", 60, 7)
    assert shown(billing) == [("orders", 0, 40, "/10.0.0.1"), ("orders", 1, 20, "/10.0.0.1")]
    assert isinstance(billing.max_lag, PartitionLag)
    assert billing.max_lag.partition == 0
    assert (idle.consumer, idle.total_lag, idle.max_lag) == ("idle", None, None)
    assert snapshot.healths["billing"] == GroupHealth("billing", "Stable", 1, 1, 0, 10, 0, 0, 0)
    assert snapshot.healths["idle"] == GroupHealth("idle", "Empty", 0, 1, 0, None, None, 0, 0)
    assert snapshot.failures == {}


def test_a_sum_is_unknown_while_one_of_its_parts_is() -> None:
    simulated = kafka()
    simulated.failures[B] = Failure("leader_not_available", "no broker leads the partition")
    [billing, _] = ClusterReader("prod", simulated).read(0).lags
    assert (billing.total_lag, [each.current_lag for each in billing.partitions]) == (None, [40, None])
    assert billing.max_lag == billing.partitions[0]


def test_an_offset_past_the_log_end_has_no_lag_and_the_log_end_that_kafka_gave() -> None:
    simulated = kafka()
    simulated.offsets["billing"][A] = 10_000
    snapshot = ClusterReader("prod", simulated).read(0)
    billing = snapshot.lags[0]
    assert (billing.total_lag, snapshot.healths["billing"].beyond_end) == (None, 1)
    assert [(each.log_end_offset, each.current_lag) for each in billing.partitions] == [(100, None), (50, 20)]


def test_an_owned_partition_without_a_committed_offset_has_no_lag_but_an_upper_bound() -> None:
    simulated = kafka()
    simulated.put("fails", {}, make_member(A, B))
    simulated.put("half", {A: 90}, make_member(A, B))
    snapshot = ClusterReader("prod", simulated).read(0)
    fails, half = (event for event in snapshot.lags if event.consumer in {"fails", "half"})
    assert (fails.total_lag, [each.at_most for each in fails.partitions]) == (None, [100, 20])
    assert (half.total_lag, [(each.current_lag, each.at_most) for each in half.partitions]) == (
        None,
        [(10, None), (None, 20)],
    )
    assert [snapshot.healths[name].uncommitted for name in ("fails", "half", "billing")] == [2, 1, 0]


def test_only_the_named_groups_are_requested() -> None:
    simulated = kafka()
    snapshot = ClusterReader("prod", simulated).read(0, ["billing", "nobody"])
    assert set(simulated.asked) == {"billing"}
    assert [each.consumer for each in snapshot.lags] == ["billing"]
    assert snapshot.failures == {"nobody": Failure("group_id_not_found", "Kafka lists no such consumer group")}


def test_a_share_group_is_not_denied_but_said_to_be_not_watched_yet() -> None:
    simulated = kafka()
    simulated.others = {"share-orders"}
    snapshot = ClusterReader("prod", simulated).read(0, ["share-orders", "nobody"])
    assert snapshot.failures["share-orders"].text.endswith("a share group or another kind, not watched yet")
    assert snapshot.failures["nobody"].text == "Kafka lists no such consumer group"
    assert snapshot.others == {"share-orders"}


def test_an_unreadable_group_does_not_affect_the_others() -> None:
    simulated = kafka()
    simulated.failures["idle"] = simulated.undescribed["billing"] = DENIED
    snapshot = ClusterReader("prod", simulated).read(0)
    assert [each.consumer for each in snapshot.lags] == ["billing"]
    assert snapshot.failures == {"idle": DENIED}
    assert snapshot.healths["billing"] == GroupHealth("billing", "Stable", None, None, 0, 10, 0, 0, 0)


def test_rebalances_are_counted_from_the_second_poll_on() -> None:
    simulated = kafka()
    cluster_reader = ClusterReader("prod", simulated)
    assert not cluster_reader.read(0).counts_rebalances
    simulated.put("billing", {A: 60, B: 20, C: 0}, make_member(A), make_member(B, host="/10.0.0.2"))
    snapshot = cluster_reader.read(0)
    assert snapshot.counts_rebalances
    assert (snapshot.healths["billing"].rebalances, snapshot.healths["idle"].rebalances) == (1, 0)


def test_an_unreachable_cluster_is_an_error() -> None:
    with pytest.raises(ClusterError, match="all brokers are down"):
        ClusterReader("prod", InMemoryKafka(down=ClusterError("_all_brokers_down", "all brokers are down"))).read(0)
