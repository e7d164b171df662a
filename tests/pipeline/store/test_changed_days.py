import datetime as dt

from karrot.history.days_with_data import Derived, Note
from karrot.pipeline.derive.job import DeriveRules
from karrot.pipeline.derive.slo_daily import Objective
from karrot.pipeline.derive.status_intervals_and_incidents import reach
from karrot.pipeline.store.table_files import changed_days, digest

_DAYS = [dt.date(2026, 11, day) for day in (19, 20, 21)]


def test_a_day_is_derived_again_if_its_files_differ_or_are_gone() -> None:
    note = Note("rules", {_DAYS[0]: Derived("aa"), _DAYS[1]: Derived("bb")})
    assert changed_days(note, {_DAYS[0]: "aa", _DAYS[1]: "bb"}, "rules") == []
    assert changed_days(note, {_DAYS[0]: "aa", _DAYS[1]: "cc", _DAYS[2]: "dd"}, "rules") == _DAYS[1:]
    assert changed_days(note, {_DAYS[0]: "aa"}, "rules") == [_DAYS[1]]


def test_an_unfinished_day_is_derived_again_even_if_its_files_are_gone() -> None:
    note = Note("rules", {_DAYS[0]: Derived("aa")}, {_DAYS[1]: Derived("bb"), _DAYS[2]: Derived("cc")})
    assert changed_days(note, {_DAYS[0]: "aa", _DAYS[1]: "bb"}, "rules") == _DAYS[1:]
    assert changed_days(note, {_DAYS[0]: "aa", _DAYS[1]: "bb"}, "other rules") == _DAYS


def test_other_rules_cause_all_days_to_be_derived_again() -> None:
    note = Note("rules", {_DAYS[0]: Derived("aa")})
    assert changed_days(note, {_DAYS[0]: "aa", _DAYS[1]: "bb"}, "other rules") == _DAYS[:2]


def test_the_digest_of_files_depends_only_on_their_names() -> None:
    assert digest(["events/a", "partitions/b"]) == digest(["partitions/b", "events/a"])
    assert digest(["events/a"]) != digest(["events/b"])


def test_rules_that_differ_in_any_digit_have_different_digests() -> None:
    strict = [DeriveRules(objective=Objective(1_000_000.0, share)) for share in (0.9999999, 0.99999995)]
    late = [DeriveRules(objective=Objective(target, 0.99)) for target in (1_000_000.0, 1_000_001.0)]
    assert len({str(rules) for rules in [*strict, *late]}) == 4


def test_changed_days_affect_others_as_far_as_a_verdict_lasts() -> None:
    month = [dt.date(2026, 11, day) for day in range(1, 31)]

    def days(*numbers: int) -> set[dt.date]:
        return {month[number - 1] for number in numbers}

    assert reach(days(10), month, dt.timedelta(minutes=5)) == (days(9, 10, 11), days(8, 9, 10, 11, 12))
    assert reach(days(10), sorted(days(2, 10)), dt.timedelta(minutes=5)) == (days(2, 9, 10, 11), days(2, 9, 10, 11))
    targets, known = reach(days(10), month, dt.timedelta(days=3))
    assert targets == days(*range(9, 15))
    assert known == days(*range(5, 16))
