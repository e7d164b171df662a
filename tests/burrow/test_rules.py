import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow import rules
from karrot.burrow.rules import TrackedPartition, Window, evaluate_group, group_status
from karrot.event import LagEvent, OffsetSample, PartitionLag, Source, Status
from support.burrow.partition_model import evaluate_partition

CASES = json.loads((Path(__file__).parents[1] / "data/burrow/evaluation_cases.json").read_text())

lags = st.none() | st.integers(0, 2**64 - 1)
samples = st.builds(OffsetSample, st.integers(0, 50), st.integers(0, 10_000), lag=st.none() | st.integers(0, 50))
windows = st.lists(samples, max_size=12).flatmap(
    lambda commits: st.integers(0, 3).map(lambda empty: [*[None] * empty, *commits])
)
ends = st.lists(st.integers(0, 100), max_size=10)


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def commits_of(case: dict[str, Any]) -> list[OffsetSample]:
    return [OffsetSample(row["offset"], row["timestamp"], lag=row["lag"]) for row in case["offsets"]]


def window_of(*offsets: int, every_ms: int = 1000, lag: int | None = 5) -> list[OffsetSample | None]:
    return [OffsetSample(offset, number * every_ms, lag=lag) for number, offset in enumerate(offsets)]


# Burrow's own tables


@pytest.mark.parametrize("case", named(CASES["rule_cases"]))
def test_each_single_rule_gives_burrows_result(case: dict[str, Any]) -> None:
    commits, allowed_lag = commits_of(case), case["allowedLag"]
    rewind = rules.rewind_index(commits)
    said = {
        "isLagAlwaysNotZero": rules.is_lag_always_not_zero(commits, allowed_lag),
        "checkIfOffsetsRewind": -1 if rewind is None else rewind,
        "checkIfOffsetsStopped": rules.is_stopped(commits, case["timeNow"]),
        "checkIfOffsetsStalled": rules.is_stalled(commits),
        "checkIfLagNotDecreasing": rules.is_lag_not_decreasing(commits),
        "checkIfRecentLagZero": rules.had_zero_lag_recently(commits, case["brokerOffsets"]),
    }
    assert said == {key: value for key, value in case["expected"].items() if not key.startswith("status")}


@pytest.mark.parametrize("case", named(CASES["rule_cases"]))
def test_a_partition_gets_burrows_verdict(case: dict[str, Any]) -> None:
    status = rules.partition_status(
        commits_of(case),
        case["brokerOffsets"],
        case["currentLag"],
        case["timeNow"],
        allowed_lag=case["allowedLag"],
        minimum_complete=case["minimumComplete"],
    )
    assert (status.name, status.value) == (case["expected"]["status"], case["expected"]["status_code"])


@pytest.mark.parametrize("case", named(CASES["storage_cases"]))
def test_a_window_keeps_the_same_commits_as_burrow(case: dict[str, Any]) -> None:
    window = Window(case["intervals"], case["min_distance_seconds"])
    for row in case["commits"]:
        window.add(row["offset"], order=row["order"], timestamp_ms=row["timestamp"], broker_offset=case["brokerOffset"])
    expected = case["expected_window"]
    assert [slot for slot in window.slots if slot] == [
        OffsetSample(row["offset"], row["timestamp"], lag=row["lag"]) for row in expected
    ]
    assert window.orders == tuple(row["order"] for row in expected)


# The window


def filled(intervals: int, *orders: int, min_distance: float = 0) -> Window:
    window = Window(intervals, min_distance)
    for order in orders:
        window.add(order * 10, order=order, timestamp_ms=order * 1000, broker_offset=1000)
    return window


def test_empty_slots_come_first() -> None:
    assert filled(3, 7).slots == (None, None, OffsetSample(70, 7000, lag=930))


def test_a_stored_order_is_dropped() -> None:
    window = filled(3, 1, 2)
    before = window.slots
    assert not window.add(99, order=1, timestamp_ms=5000, broker_offset=1000)
    assert not window.add(99, order=2, timestamp_ms=5000, broker_offset=1000)
    assert window.slots == before


def test_a_full_window_drops_a_commit_that_is_older_than_all() -> None:
    window = filled(3, 2, 4, 6)
    assert not window.add(10, order=1, timestamp_ms=1000, broker_offset=1000)
    assert window.orders == (2, 4, 6)


def test_a_commit_right_after_the_oldest_of_a_full_window_replaces_it_and_never_merges() -> None:
    window = filled(3, 2, 4, 6, min_distance=1)
    assert not window.add(30, order=3, timestamp_ms=2500, broker_offset=1000)
    assert window.slots == (
        OffsetSample(30, 2500, lag=None),
        OffsetSample(40, 4000, lag=960),
        OffsetSample(60, 6000, lag=940),
    )


def test_exactly_the_minimum_distance_is_a_new_slot() -> None:
    window = filled(3, 1, min_distance=1)
    window.add(20, order=2, timestamp_ms=2000, broker_offset=1000)
    window.add(30, order=3, timestamp_ms=2999, broker_offset=1000)
    assert window.slots == (None, OffsetSample(10, 1000, lag=990), OffsetSample(30, 2000, lag=970))


def test_without_a_minimum_distance_a_timestamp_that_goes_back_is_merged() -> None:
    window = filled(3, 5)
    assert window.add(60, order=6, timestamp_ms=4999, broker_offset=1000)
    assert window.slots == (None, None, OffsetSample(60, 5000, lag=940))


def test_a_commit_ahead_of_the_known_log_end_has_no_lag() -> None:
    window = Window(1)
    window.add(50, order=1, timestamp_ms=1, broker_offset=49, observed_at_ms=2)
    assert window.slots == (OffsetSample(50, 1, lag=0, observed_at_ms=2),)


orders = st.lists(st.integers(0, 30), max_size=40)


@given(st.integers(1, 8), orders, st.lists(st.integers(0, 30_000), min_size=40, max_size=40), st.integers(0, 5))
def test_a_window_is_never_longer_than_its_intervals_and_always_in_order(
    intervals: int, arrivals: list[int], timestamps: list[int], min_distance: int
) -> None:
    window = Window(intervals, min_distance)
    for order, timestamp_ms in zip(arrivals, timestamps, strict=False):
        newest_before = max(window.orders, default=-1)
        is_newest = window.add(order, order=order, timestamp_ms=timestamp_ms, broker_offset=30)
        assert is_newest == (order > newest_before)
        assert len(window.slots) == intervals
        assert all(earlier < later for earlier, later in pairwise(window.orders))
        assert window.orders[-1:] == (max(newest_before, order),)
        assert window.slots[: intervals - len(window.orders)] == (None,) * (intervals - len(window.orders))


@given(st.integers(1, 8), st.sets(st.integers(0, 1000), max_size=30))
def test_commits_in_order_leave_only_the_newest(intervals: int, arrivals: set[int]) -> None:
    tail = sorted(arrivals)[-intervals:]
    window = filled(intervals, *sorted(arrivals))
    assert [slot for slot in window.slots if slot] == [
        OffsetSample(n * 10, n * 1000, lag=max(0, 1000 - n * 10)) for n in tail
    ]


@given(st.permutations(range(6)))
def test_in_a_window_with_room_arrival_changes_only_the_lags(arrivals: list[int]) -> None:
    by_arrival, by_order = filled(6, *arrivals), filled(6, *range(6))
    assert by_arrival.orders == by_order.orders
    assert without_lags(by_arrival) == without_lags(by_order)


@given(st.permutations(range(9)), st.integers(1, 9))
def test_the_newest_commit_stays_whatever_the_arrival(arrivals: list[int], intervals: int) -> None:
    assert filled(intervals, *arrivals).orders[-1] == 8


def without_lags(window: Window) -> list[OffsetSample | None]:
    return [slot and slot._replace(lag=None) for slot in window.slots]


# The verdict on a partition


@given(windows, ends, st.integers(0, 100), st.integers(0, 100), st.integers(0, 20))
def test_a_lag_that_is_allowed_is_ok(
    window: list[OffsetSample | None], broker_offsets: list[int], lag: int, more: int, now: int
) -> None:
    assert rules.partition_status(window, broker_offsets, lag, now, allowed_lag=lag + more) is Status.OK


@given(windows, ends, lags.map(lambda lag: lag or 0), st.integers(-5, 20))
def test_a_partition_is_ok_warn_stop_stall_or_rewind(
    window: list[OffsetSample | None], broker_offsets: list[int], lag: int, now: int
) -> None:
    status = rules.partition_status(window, broker_offsets, lag, now)
    assert status in {Status.OK, Status.WARN, Status.STOP, Status.STALL, Status.REWIND}


@given(windows, ends, st.integers(1, 100), st.integers(0, 20), st.integers(0, 5))
def test_empty_slots_do_not_change_the_verdict(
    window: list[OffsetSample | None], broker_offsets: list[int], lag: int, now: int, empty: int
) -> None:
    wider = [*[None] * empty, *window]
    assert rules.partition_status(wider, broker_offsets, lag, now) == rules.partition_status(
        window, broker_offsets, lag, now
    )


@given(windows, ends, st.integers(1, 100), st.integers(0, 20), st.randoms())
def test_the_order_of_the_broker_offsets_does_not_matter(
    window: list[OffsetSample | None], broker_offsets: list[int], lag: int, now: int, random: Any
) -> None:
    shuffled = list(broker_offsets)
    random.shuffle(shuffled)
    assert rules.partition_status(window, shuffled, lag, now) == rules.partition_status(
        window, broker_offsets, lag, now
    )


@given(windows, ends, st.integers(1, 100), st.integers(0, 20))
def test_stop_stays_stop_while_nothing_is_committed(
    window: list[OffsetSample | None], broker_offsets: list[int], lag: int, now: int
) -> None:
    if rules.partition_status(window, broker_offsets, lag, now) is Status.STOP:
        assert rules.partition_status(window, broker_offsets, lag, now + 1) is Status.STOP


def test_one_commit_with_lag_is_stop() -> None:
    assert rules.partition_status(window_of(10), [11], 1, 1) is Status.STOP


def test_a_commit_of_the_future_is_not_stop() -> None:
    broken = OffsetSample(5, 7_850_000_000_000_000_000, lag=5)
    assert rules.partition_status([broken], [10], 5, 1_763_741_000) is Status.STALL


def test_stop_comes_before_rewind_and_rewind_before_stall() -> None:
    rewound = window_of(10, 5, 5)
    assert rules.partition_status(rewound, [20], 15, 5) is Status.STOP
    assert rules.partition_status(rewound, [20], 15, 3) is Status.REWIND
    assert rules.partition_status(rewound, [5, 20], 15, 5) is Status.REWIND
    assert rules.partition_status(window_of(5, 5, 5), [20], 15, 3) is Status.STALL


def test_a_zero_lag_hides_stall_and_warn_but_no_rewind() -> None:
    assert rules.partition_status(window_of(5, 5, lag=0), [20], 15, 2) is Status.OK
    assert rules.partition_status(window_of(5, 9, lag=0), [20], 15, 2) is Status.OK
    assert rules.partition_status(window_of(9, 5, lag=0), [20], 15, 2) is Status.REWIND


def test_drops_after_a_recovered_rewind_are_not_examined() -> None:
    recovered = [OffsetSample(offset, 0, lag=lag) for offset, lag in ((10, 5), (9, 6), (10, 5), (2, 13))]
    assert rules.partition_status(recovered, [15], 13, 0) is Status.OK


def test_unknown_lags_are_passed_over() -> None:
    unknown = window_of(5, 6, 7, lag=None)
    assert rules.is_lag_always_not_zero([slot for slot in unknown if slot])
    assert rules.partition_status(unknown, [20], 13, 2) is Status.WARN


def test_a_window_less_complete_than_asked_for_is_ok() -> None:
    window = [None, *window_of(5, 5)]
    two_thirds_as_float32 = 0.6666667
    assert rules.partition_status(window, [20], 15, 1, minimum_complete=0.7) is Status.OK
    assert rules.partition_status(window, [20], 15, 1, minimum_complete=two_thirds_as_float32) is Status.STALL
    assert rules.partition_status(window, [20], 15, 1, minimum_complete=2 / 3) is Status.STALL


@pytest.mark.parametrize(
    "window",
    [
        pytest.param([], id="an empty window"),
        pytest.param([None], id="one empty slot"),
        pytest.param([None, None], id="two empty slots"),
    ],
)
def test_a_window_without_commits_is_ok(window: list[OffsetSample | None]) -> None:
    assert rules.partition_status(window, [20], 20, 10_000) is Status.OK


# The verdict on a group


@given(st.lists(st.sampled_from([Status.OK, Status.WARN, Status.STOP, Status.STALL, Status.REWIND]), min_size=1))
def test_a_group_is_as_bad_as_its_worst_partition(partitions: list[Status]) -> None:
    worst = max(partitions)
    assert group_status(partitions) is (worst if worst <= Status.WARN else Status.ERR)


def test_a_group_without_partitions_is_ok() -> None:
    assert group_status([]) is Status.OK
    assert evaluate_group("c", "g", [], 5_000) == LagEvent(
        "c", "g", "OK", 0, 5_000, complete=0.0, partition_count=0, max_lag=None
    )


def test_a_partition_without_commits_has_no_start_and_no_end() -> None:
    owner_only = TrackedPartition("t", 1, [None] * 10, [5], "/10.0.0.1", "client-1")
    assert evaluate_partition(owner_only, 100) == PartitionLag(
        topic="t", partition=1, status_text="OK", current_lag=0, owner="/10.0.0.1", client_id="client-1", complete=0.1
    )
    assert evaluate_partition(TrackedPartition("t", 2, (), [5]), 100) == PartitionLag(
        topic="t", partition=2, status_text="OK", current_lag=0, complete=0.0
    )


def test_a_partition_whose_topic_is_gone_has_no_current_lag() -> None:
    assert evaluate_partition(TrackedPartition("t", 0, window_of(5, 6)), 100).current_lag == 0


def test_a_group_lists_partitions_worse_than_ok_and_counts_all() -> None:
    well = TrackedPartition("orders", 0, window_of(7, 9, lag=0), [9, 10])
    stalled = TrackedPartition("orders", 1, [None, *window_of(9, 9)], [20])
    as_bad = TrackedPartition("orders", 2, window_of(9, 9, 9), [20])
    untouched = TrackedPartition("orders", 3, (), [20])
    event = evaluate_group("prod", "billing", [well, stalled, as_bad, untouched], 1_999, source=Source.KAFKA)
    of_stalled = PartitionLag(
        topic="orders",
        partition=1,
        status_text="STALL",
        current_lag=11,
        start=OffsetSample(9, 0, lag=5),
        end=OffsetSample(9, 1000, lag=5),
        complete=0.6666667,
    )
    assert event == LagEvent(
        cluster="prod",
        consumer="billing",
        status_text="ERR",
        total_lag=23,
        observed_at_ms=1_999,
        source=Source.KAFKA,
        complete=0.5,
        partition_count=4,
        max_lag=of_stalled,
        partitions=(of_stalled, evaluate_partition(as_bad, 1)),
    )
    assert [lag.partition for lag in evaluate_group("c", "g", [well, stalled], 1_999, show_all=True).partitions] == [
        0,
        1,
    ]


@given(st.integers(0, 9), st.integers(0, 9))
def test_completeness_is_the_nearest_32_bit_float(complete: int, incomplete: int) -> None:
    written = completeness_of(complete, incomplete)
    assert as_float32(written) == as_float32(complete / max(1, complete + incomplete))


def test_completeness_is_written_as_go_writes_it() -> None:
    assert [completeness_of(*counts) for counts in ((2, 1), (1, 2), (1, 10), (5, 5))] == [
        0.6666667,
        0.33333334,
        0.09090909,
        0.5,
    ]


def completeness_of(complete: int, incomplete: int) -> float:
    partitions = [
        *[TrackedPartition("t", number, window_of(1), [1]) for number in range(complete)],
        *[TrackedPartition("u", number, [None, *window_of(1)], [1]) for number in range(incomplete)],
    ]
    return evaluate_group("c", "g", partitions, 0).complete or 0.0


def as_float32(number: float) -> bytes:
    return struct.pack("f", number)
