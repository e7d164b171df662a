import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from karrot.event import GroupKey
from karrot.reporters.cloudwatch import membership as module
from karrot.reporters.cloudwatch.membership import Membership
from karrot.settings.options import CloudWatch as Options

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def _key(consumer: str, cluster: str = "eu") -> GroupKey:
    return GroupKey(cluster, consumer)


def _full(*consumers: str, at_ms: int = 0) -> Membership:
    membership = Membership(Options(max_groups=len(consumers)))
    for consumer in consumers:
        assert membership.admits(_key(consumer), at_ms)
    return membership


def test_the_first_groups_are_inside_the_cap_and_stay_there() -> None:
    membership = _full("a", "b")
    assert not membership.admits(_key("c"), 1)
    assert membership.admits(_key("a"), 2)
    assert membership.admits(_key("b"), 3)
    assert (membership.inside, membership.outside) == (2, 1)


def test_groups_with_one_name_in_two_clusters_count_as_two() -> None:
    membership = _full("a")
    assert not membership.admits(_key("a", "us"), 0)


def test_a_deleted_group_frees_its_place_at_once() -> None:
    membership = _full("a", "b")
    membership.leaves(_key("a"))
    membership.leaves(_key("nobody"))
    assert membership.admits(_key("c"), 0)
    assert not membership.admits(_key("a"), 0)


def test_a_group_that_gets_inside_or_is_deleted_no_longer_counts_as_outside() -> None:
    membership = _full("a")
    for consumer in ("b", "c"):
        membership.admits(_key(consumer), 0)
    membership.leaves(_key("c"))
    assert membership.outside == 1
    membership.leaves(_key("a"))
    membership.admits(_key("b"), 0)
    assert membership.outside == 0


def test_silence_alone_does_not_remove_a_group() -> None:
    membership = _full("a")
    assert membership.admits(_key("a"), 30 * DAY_MS)


@pytest.mark.parametrize("hours_into_quarter", [0, 3, 5.99])
def test_a_silent_group_is_replaced_after_a_day_of_silence_and_six_more_hours_at_most(
    hours_into_quarter: float,
) -> None:
    heard_ms = int(hours_into_quarter * HOUR_MS)
    within, after = _full("a", at_ms=heard_ms), _full("a", at_ms=heard_ms)
    assert not within.admits(_key("b"), heard_ms + DAY_MS)
    assert after.admits(_key("b"), heard_ms + DAY_MS + 6 * HOUR_MS)
    assert not after.admits(_key("a"), heard_ms + DAY_MS + 6 * HOUR_MS)


def test_the_longest_silent_group_is_replaced_first() -> None:
    membership = _full("a", "b", "c")
    membership.admits(_key("a"), 12 * HOUR_MS)
    membership.admits(_key("c"), 3 * DAY_MS)
    assert [membership.admits(_key(name), 3 * DAY_MS) for name in ("d", "a", "b", "c")] == [True, True, False, True]


def test_silent_groups_outside_the_cap_are_not_counted() -> None:
    membership = _full("a")
    membership.admits(_key("b"), 0)
    membership.admits(_key("c"), DAY_MS)
    membership.admits(_key("a"), 36 * HOUR_MS)
    assert membership.outside == 1


def test_many_groups_outside_the_cap_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTSIDE_BOUND", 100)
    membership = _full("a")
    for number in range(1000):
        membership.admits(_key(f"group-{number}"), 0)
    assert membership.outside == len(membership._outside) == 100


def test_a_restart_does_not_replace_groups() -> None:
    options = Options(max_groups=2)
    before = _full("b", "ä/c", at_ms=HOUR_MS)
    after = Membership(options, before.dump())
    assert [after.admits(_key(name), HOUR_MS) for name in ("a", "ä/c", "b")] == [False, True, True]


def test_a_restart_does_not_extend_an_earlier_silence() -> None:
    after = Membership(Options(max_groups=1), _full("a").dump())
    assert after.admits(_key("b"), 30 * HOUR_MS)


def test_a_missing_dump_is_an_empty_membership() -> None:
    membership = Membership(Options(), None)
    assert (membership.inside, membership.outside, membership.changed) == (0, 0, False)


def test_a_dump_is_small_and_equal_for_equal_groups() -> None:
    one, other = Membership(Options()), Membership(Options())
    keys = [_key("b"), _key("a"), _key("c", "ap")]
    assert all(
        [one.admits(key, 13 * HOUR_MS) for key in keys] + [other.admits(key, 13 * HOUR_MS) for key in keys[::-1]]
    )
    dump = one.dump()
    assert dump == other.dump() == b'{"ap":{"c":2},"eu":{"a":2,"b":2}}'


def test_a_change_is_pending_until_its_dump_is_stored() -> None:
    membership = _full("a", "b")
    assert membership.changed
    membership.dump()
    assert membership.changed
    membership.changed = False
    membership.admits(_key("a"), HOUR_MS)
    membership.admits(_key("c"), HOUR_MS)
    membership.leaves(_key("c"))
    assert not membership.changed
    membership.admits(_key("a"), 7 * HOUR_MS)
    assert membership.changed
    assert json.loads(membership.dump()) == {"eu": {"a": 1, "b": 0}}
    membership.leaves(_key("a"))
    assert membership.dump() == b'{"eu":{"b":0}}'


def test_a_lower_cap_keeps_the_most_recently_heard_groups() -> None:
    before = _full("a", "b", "c")
    before.admits(_key("b"), 7 * HOUR_MS)
    after = Membership(Options(max_groups=1), before.dump())
    assert [after.admits(_key(name), 7 * HOUR_MS) for name in ("a", "b", "c")] == [False, True, False]
    assert after.changed
    assert after.dump() == b'{"eu":{"b":1}}'


def test_groups_that_are_no_longer_included_free_their_places() -> None:
    options = Options(max_groups=2, exclude=re.compile("test"))
    after = Membership(options, _full("a-test", "b").dump())
    assert after.inside == 1
    assert after.admits(_key("c"), 0)


@pytest.mark.parametrize("dump", [b"{", b"[]", b'{"eu":["a"]}', b'{"eu":{"a":"1"}}', b"\xff"])
def test_an_unreadable_dump_is_logged_and_the_groups_are_chosen_again(dump: bytes) -> None:
    with capture_logs() as records:
        membership = Membership(Options(), dump)
    assert [each["code"] for each in records] == ["groups_chosen_again"]
    assert (membership.inside, membership.changed) == (0, False)


_STEP = st.tuples(
    st.sampled_from("abcdef"), st.integers(0, 20), st.sampled_from(["hear", "hear", "hear", "leave", "restart"])
)


@given(st.lists(_STEP, max_size=60), st.integers(1, 4))
def test_no_group_loses_its_place_within_a_day(steps: list[tuple[str, int, str]], cap: int) -> None:
    options = Options(max_groups=cap)
    membership = Membership(options)
    inside: dict[str, int] = {}
    now_ms = 0
    for name, hours, what in steps:
        now_ms += hours * HOUR_MS
        if what == "restart":
            membership = Membership(options, membership.dump())
        elif what == "leave":
            membership.leaves(_key(name))
            inside.pop(name, None)
        elif membership.admits(_key(name), now_ms):
            inside[name] = now_ms
        else:
            assert name not in inside
            assert membership.inside == cap
        lost = {name for name in inside if _key(name) not in membership._inside}
        assert all(now_ms - inside.pop(name) > DAY_MS for name in lost)
        assert membership.inside == len(inside) <= cap


def test_names_of_megabytes_do_not_make_the_saved_list_large() -> None:
    membership = Membership(Options(max_groups=2))
    long = [_key("x" * 1_000_000 + ending) for ending in "ab"]
    assert [membership.admits(key, 0) for key in long] == [True, True]
    assert len(membership.dump()) < 4000
    restored = Membership(Options(max_groups=2), membership.dump())
    assert [restored.admits(key, 0) for key in (*long, _key("x" * 1_000_000))] == [True, True, False]
    restored.leaves(long[0])
    assert restored.inside == 1
