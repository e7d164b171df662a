"""Polls count rebalances, and the messages that retention deletes before they are read."""

import pytest

from karrot.event import TopicPartition
from karrot.watch.cluster_interface import Description, GroupMember
from karrot.watch.cluster_reader import Stability, retention
from support.kafka.in_memory_kafka import make_member

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
ONE = (make_member(A, B),)
TWO = (make_member(A), make_member(B, host="/10.0.0.2"))
STATIC = tuple(each._replace(instance_id=f"pod-{number}") for number, each in enumerate(TWO))
RESTARTED = (STATIC[0], STATIC[1]._replace(id="another id", host="/10.0.0.9"))
SWAPPED = (STATIC[0]._replace(assigned=(B,)), STATIC[1]._replace(assigned=(A,)))


def seen(*descriptions: Description) -> int:
    stability = Stability()
    for each in descriptions:
        stability.see(each)
    return stability.rebalances


def stable(*members: GroupMember) -> Description:
    return Description("Stable", members)


@pytest.mark.parametrize(
    ("descriptions", "rebalances"),
    [
        pytest.param([stable(*ONE), stable(*ONE)], 0, id="nothing changed"),
        pytest.param([stable(*ONE), stable(*TWO)], 1, id="a member joined between two polls"),
        pytest.param([stable(*TWO), stable(*reversed(TWO))], 0, id="the order of members says nothing"),
        pytest.param([stable(*ONE), Description("PreparingRebalance", ONE), stable(*TWO)], 1, id="one seen under way"),
        pytest.param(
            [stable(*ONE), Description("PreparingRebalance", ONE), Description("CompletingRebalance", ONE)],
            1,
            id="one in two polls",
        ),
        pytest.param([stable(*STATIC), stable(*RESTARTED)], 0, id="a static member restarted"),
        pytest.param([stable(*STATIC), stable(*reversed(STATIC))], 0, id="static members in another order"),
        pytest.param([stable(*STATIC), stable(*SWAPPED)], 1, id="static members swapped their partitions"),
        pytest.param([stable(*ONE), Description("Empty", ())], 1, id="all left"),
        pytest.param([stable(*ONE), Description("Stable", None), stable(*ONE)], 0, id="not described once"),
        pytest.param([Description("PreparingRebalance", ONE)], 1, id="under way when the watch began"),
    ],
)
def test_rebalances_are_counted(descriptions: list[Description], rebalances: int) -> None:
    assert seen(*descriptions) == rebalances


@pytest.mark.parametrize(
    ("committed", "starts", "ends", "expected"),
    [
        pytest.param({A: 50}, {A: 20}, {A: 90}, (0, 30), id="thirty messages until unread ones go"),
        pytest.param({A: 50, B: 25}, {A: 20, B: 20}, {A: 90, B: 90}, (0, 5), id="the nearest partition"),
        pytest.param(
            {A: 300, B: 1000},
            {A: 200, B: 990},
            {A: 1000, B: 1001},
            (0, 100),
            id="not a short log at its end",
        ),
        pytest.param({A: 50}, {A: 70}, {A: 90}, (20, 0), id="twenty are gone"),
        pytest.param({A: 50, B: 10}, {A: 70, B: 12}, {A: 90, B: 20}, (22, 0), id="gone in both"),
        pytest.param({A: 50}, {A: 90}, {A: 90}, (0, None), id="nothing is left to read"),
        pytest.param({A: 70}, {A: 70}, {A: 90}, (0, 0), id="the group is past the gone ones"),
        pytest.param({A: 50}, {A: 50}, {A: 50}, (0, None), id="nothing is unread"),
        pytest.param({A: 50, B: 5}, {A: 20}, {A: 90, B: 9}, (0, 30), id="what is not known is left out"),
        pytest.param({A: 50}, {}, {A: 90}, (None, None), id="nothing is known"),
    ],
)
def test_messages_that_retention_deletes_unread_are_counted(
    committed: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    expected: tuple[int | None, int | None],
) -> None:
    assert retention(committed, starts, ends) == expected
