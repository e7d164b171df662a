"""Resync and watch report a group as deleted only after two lists a minute apart lack it."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from karrot.deletions import MISSING_MS, MissingGroups


class Look(NamedTuple):
    """A list of groups, with the time since the one before, and the groups that some source judged since then."""

    passed_s: int
    listed: frozenset[str]
    judged: frozenset[str]
    is_complete: bool = True


NAMES = st.frozensets(st.sampled_from("ab"))
LOOKS = st.lists(st.builds(Look, st.integers(0, 90), NAMES, NAMES, st.booleans()), max_size=12)


def deleted(*looks: Look, known: str = "ab") -> list[list[str]]:
    """What the rule says to each look."""
    rule, judged, now_ms, found = MissingGroups(), dict.fromkeys(known, 0), 0, []
    for each in looks:
        now_ms += each.passed_s * 1000
        judged |= dict.fromkeys(each.judged & judged.keys(), now_ms + 1)
        found.append(rule.see(each.listed, judged, now_ms, is_complete=each.is_complete))
    return found


@given(LOOKS)
def test_a_group_is_deleted_if_and_only_if_two_complete_lists_a_minute_apart_and_all_between_them_lack_it(
    looks: list[Look],
) -> None:
    at_ms, now_ms = list[int](), 0
    for each in looks:
        now_ms += each.passed_s * 1000
        at_ms.append(now_ms)
    found = deleted(*looks)
    for group in "ab":
        last = 0  # the first look whose list may begin the minute
        for number, each in enumerate(looks):
            if group in each.listed:
                last = number + 1
            elif group in each.judged:
                last = number
            complete = [at_ms[at] for at in range(last, number + 1) if looks[at].is_complete]
            is_due = each.is_complete and bool(complete) and at_ms[number] - complete[0] >= MISSING_MS
            assert (group in found[number]) == (is_due and group not in each.listed)
            if group in found[number]:
                last = number


NONE, B = frozenset[str](), frozenset("b")


def test_a_group_that_stays_is_never_deleted() -> None:
    assert deleted(*[Look(60, frozenset("ab"), NONE)] * 5) == [[]] * 5


def test_a_group_is_reported_again_after_another_minute_if_it_was_not_deleted_then() -> None:
    assert deleted(*[Look(30, B, NONE)] * 6) == [[], [], ["a"], [], ["a"], []]


def test_a_verdict_begins_the_minute_again() -> None:
    assert deleted(Look(0, B, NONE), Look(59, B, frozenset("a")), Look(30, B, NONE), Look(30, B, NONE)) == [
        [],
        [],
        [],
        ["a"],
    ]


def test_an_incomplete_list_neither_begins_nor_ends_the_minute() -> None:
    part = Look(60, B, NONE, is_complete=False)
    assert deleted(part, part, Look(0, B, NONE), part, Look(0, B, NONE)) == [[], [], [], [], ["a"]]
