"""A ring takes samples with a lag, and has a verdict once it has enough samples."""

import pytest

from karrot.event import OffsetSample, TopicPartition
from karrot.watch.cluster_interface import Description
from karrot.watch.rings import Rings
from support.kafka.in_memory_kafka import make_member

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_800_000_000_000


class Polls:
    """Polls ten seconds apart."""

    def __init__(self) -> None:
        self.rings = Rings()
        self.now = NOW

    def see(
        self,
        offsets: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        *,
        members: bool | tuple[TopicPartition, ...] = True,
        starts: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.rings.see_logs(starts or {}, ends, self.now)
        self.rings.see_commits("g", offsets, owned=offsets if members is True else members or (), now_ms=self.now)
        self.now += 10_000

    def samples(self, place: TopicPartition = A) -> list[OffsetSample]:
        [tracked] = [each for each in self.rings.tracked("g", {}, ()) if (each.topic, each.partition) == place]
        return [slot for slot in tracked.slots if slot is not None]


@pytest.fixture
def polls() -> Polls:
    return Polls()


def test_an_offset_that_moved_is_a_sample_at_the_time_of_the_poll(polls: Polls) -> None:
    polls.see({A: 5}, {A: 9}, members=False)
    polls.see({A: 5}, {A: 9}, members=False)
    polls.see({A: 8}, {A: 20}, members=False)
    polls.see({A: 8}, {A: 30}, members=False)
    assert [(each.offset, each.timestamp_ms) for each in polls.samples()] == [(5, NOW + 10_000), (8, NOW + 20_000)]


def test_the_lag_of_a_sample_uses_the_log_end_of_the_poll_before_as_in_burrow(polls: Polls) -> None:
    polls.see({A: 5}, {A: 9})
    polls.see({A: 8}, {A: 20})
    polls.see({A: 25}, {A: 30})
    assert [(each.lag, each.observed_at_ms) for each in polls.samples()] == [
        (1, NOW),
        (0, NOW + 10_000),
    ]


def test_an_unchanged_offset_is_a_sample_only_if_a_member_owns_the_partition(polls: Polls) -> None:
    for _ in range(3):
        polls.see({A: 5}, {A: 9}, members=False)
    assert len(polls.samples()) == 1
    polls.see({A: 5}, {A: 9}, members=True)
    assert len(polls.samples()) == 2


def test_members_that_own_other_partitions_give_no_samples(polls: Polls) -> None:
    for _ in range(3):
        polls.see({A: 5, B: 5}, {A: 9, B: 9}, members=(B,))
    assert (len(polls.samples(A)), len(polls.samples(B))) == (1, 2)


def test_a_rewind_is_a_sample(polls: Polls) -> None:
    polls.see({A: 5}, {A: 9}, members=False)
    polls.see({A: 5}, {A: 9}, members=False)
    polls.see({A: 2}, {A: 9}, members=False)
    assert [each.offset for each in polls.samples()] == [5, 2]


def test_a_partition_has_a_verdict_from_half_a_ring_on(polls: Polls) -> None:
    for _ in range(5):
        polls.see({A: 5}, {A: 9})
        assert polls.rings.unjudged("g") == {A}
    polls.see({A: 5}, {A: 9})
    assert polls.rings.unjudged("g") == set()


def test_an_idle_partition_without_a_member_has_a_verdict_after_a_whole_ring_of_polls(polls: Polls) -> None:
    for _ in range(11):
        polls.see({A: 5}, {A: 9}, members=False)
        assert polls.rings.unjudged("g") == {A}
    polls.see({A: 5}, {A: 9}, members=False)
    assert polls.rings.unjudged("g") == set()


def test_a_partition_with_a_verdict_keeps_having_one_when_it_moves_again(polls: Polls) -> None:
    for _ in range(12):
        polls.see({A: 5}, {A: 9}, members=False)
    polls.see({A: 6}, {A: 9}, members=False)
    assert polls.rings.unjudged("g") == set()


def test_a_partition_without_a_committed_offset_is_forgotten(polls: Polls) -> None:
    polls.see({A: 5, B: 5}, {A: 9, B: 9})
    polls.see({A: 5, B: 5}, {A: 9, B: 9})
    polls.see({B: 6}, {A: 9, B: 9})
    assert [each.partition for each in polls.rings.tracked("g", {}, ())] == [1]
    polls.rings.forget_unread()
    assert set(polls.rings.logs) == {B}


def test_no_sample_is_taken_before_a_log_end_is_known(polls: Polls) -> None:
    polls.see({A: 5, B: 5}, {A: 9})
    assert list(polls.rings.tracked("g", {}, ())) == []
    polls.see({A: 5, B: 5}, {A: 9, B: 9})
    assert [each.partition for each in polls.rings.tracked("g", {}, ())] == [0]


def test_an_unreadable_log_end_is_replaced_by_the_last_known_one(polls: Polls) -> None:
    polls.see({A: 5}, {A: 9})
    polls.see({A: 6}, {})
    polls.see({A: 8}, {})
    [tracked] = polls.rings.tracked("g", {}, ())
    assert list(tracked.broker_offsets) == [9]
    assert [each.lag for each in polls.samples()] == [3, 1]


def test_deleted_messages_are_not_lag_and_the_sample_keeps_the_log_end_that_kafka_gave(polls: Polls) -> None:
    polls.see({A: 100}, {A: 500}, starts={A: 100})
    polls.see({A: 100}, {A: 500}, starts={A: 480})
    polls.see({A: 100}, {A: 510}, starts={A: 500})
    assert [(each.offset, each.lag, each.log_end) for each in polls.samples()] == [(100, 400, None), (100, 20, 500)]
    [tracked] = polls.rings.tracked("g", {}, ())
    assert list(tracked.broker_offsets) == [500, 120, 110]


def test_a_log_start_that_cannot_be_read_deletes_nothing(polls: Polls) -> None:
    polls.see({A: 5}, {A: 9}, starts={A: 7})
    polls.see({A: 5}, {A: 9})
    assert [list(each.broker_offsets) for each in polls.rings.tracked("g", {}, ())] == [[7, 9]]


def test_a_partition_has_the_name_of_its_member(polls: Polls) -> None:
    polls.see({A: 5, B: 5}, {A: 9, B: 9})
    polls.see({A: 5, B: 5}, {A: 9, B: 9})
    owners = Description("Stable", (make_member(B, host="/10.1.2.3", name="reader"),)).owners
    assert [(each.owner, each.client_id) for each in polls.rings.tracked("g", owners, ())] == [
        ("", ""),
        ("/10.1.2.3", "reader"),
    ]


def test_after_the_clock_was_set_back_the_samples_begin_again(polls: Polls) -> None:
    for offset in range(5):
        polls.see({A: offset}, {A: 9})
    polls.now = NOW - 3_600_000
    for offset in range(5, 8):
        polls.see({A: offset}, {A: 9})
    assert [each.offset for each in polls.samples()] == [5, 6, 7]
