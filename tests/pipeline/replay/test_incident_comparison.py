from karrot.event import GroupKey
from karrot.pipeline.replay.incident_comparison import (
    ReplayedIncident,
    StatusRun,
    compare,
    sentences,
)
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

ORDERS, CLICKS = GroupKey("c", "orders"), GroupKey("c", "clicks")
DAY_MS = 1_763_596_800_000


def at(minute: float) -> int:
    return DAY_MS + int(minute * 60_000)


def run(group: GroupKey, begin: float, end: float, status: str = "WARN", *, is_open: bool = False) -> StatusRun:
    return StatusRun(group, status, at(begin), at(end), is_open)


def incident(
    group: GroupKey,
    begin: float,
    end: float,
    worst: str,
    *,
    is_open: bool = False,
    flap: bool = False,
    stood: bool = False,
) -> ReplayedIncident:
    return ReplayedIncident(group, at(begin), at(end), is_open, worst, flap, stood)


SETS = [RuleSet("burrow"), RuleSet("calm", 20)]
STOOD = [run(ORDERS, 58, 80, "ERR"), run(CLICKS, 200, 204, "ERR")]
RUNS = [
    [
        run(CLICKS, 5, 6),
        run(CLICKS, 30, 31),
        run(CLICKS, 202, 205, "ERR"),
        run(ORDERS, 60, 62),
        run(ORDERS, 62, 81, "ERR"),
        run(ORDERS, 300, 310, is_open=True),
    ],
    [run(ORDERS, 65, 81, "ERR"), run(ORDERS, 90, 91)],
]


def test_runs_without_an_ok_between_are_one_incident_and_a_quick_return_is_a_flap() -> None:
    first, second = compare(SETS, RUNS, STOOD, flap_s=1_800)
    assert list(first.incidents) == [
        incident(CLICKS, 5, 6, "WARN"),
        incident(CLICKS, 30, 31, "WARN", flap=True),
        incident(CLICKS, 202, 205, "ERR", stood=True),
        incident(ORDERS, 60, 81, "ERR", stood=True),
        incident(ORDERS, 300, 310, "WARN", is_open=True),
    ]
    assert (first.flaps, first.minutes_not_ok, first.without_standstill) == (1, 36, 3)
    assert (second.flaps, second.minutes_not_ok, second.without_standstill) == (1, 17, 1)


def test_rule_sets_are_compared_with_stalled_partitions_and_with_the_first_set() -> None:
    first, second = compare(SETS, RUNS, STOOD, flap_s=1_800)
    assert (first.delays, first.missed, second.delays) == ([120, 120], [], [420, None])
    assert (second.median_delay, second.missed) == (420, [STOOD[1]])
    assert (first.shifts, second.shifts) == ([0] * 5, [None, None, None, 300, None])
    assert (first.alone, second.alone) == (0, 1)


def test_an_earlier_incident_finds_a_stalled_partition_at_once() -> None:
    (only,) = compare(SETS[:1], [[run(ORDERS, 50, 70)]], STOOD[:1], flap_s=60)
    assert only.delays == [0]


def test_sentences_say_what_the_table_does_not_show() -> None:
    assert list(sentences(compare(SETS, RUNS, STOOD, flap_s=1_800))) == [
        "During 3 incidents of burrow, no partition stood still.",
        "During 1 incident of calm, no partition stood still.",
        "calm finds 1 of 5 incidents of burrow, 5 min later.",
        "calm has 1 incident that burrow does not have.",
        "calm misses 1 stand-still: c/clicks at 11-20 03:20 for 4 min.",
    ]
    assert list(sentences(compare(SETS[:1], [[]], [], flap_s=60))) == [
        "No partition stood still in this time, so this replay does not show what each set of rules would miss.",
    ]
