"""An alarm treats missing data as AWS's own tables say.

Source: CloudWatch User Guide, "Configuring how CloudWatch alarms treat missing data". 0 is within the threshold, X
breaches it, - is missing; the newest point is on the right. The evaluation range is 5 points.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.autoscaling.alarm_model import AlarmState, Mark, Treatment, judge

OK, ALARM, INSUFFICIENT = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA
KEPT = None
TREATMENTS = (Treatment.MISSING, Treatment.IGNORE, Treatment.BREACHING, Treatment.NOT_BREACHING)

THREE_OF_THREE = {
    "0 - X - X": (OK, OK, OK, OK),
    "0 - - - -": (OK, OK, OK, OK),
    "- - - - -": (INSUFFICIENT, KEPT, ALARM, OK),
    "0 X X - X": (ALARM, ALARM, ALARM, ALARM),
    "- - X - -": (ALARM, KEPT, ALARM, OK),
}
TWO_OF_THREE = {
    "0 - X - X": (ALARM, ALARM, ALARM, ALARM),
    "0 0 X 0 X": (ALARM, ALARM, ALARM, ALARM),
    "0 - X - -": (OK, OK, ALARM, OK),
    "- - - - 0": (OK, OK, ALARM, OK),
    "- - - X -": (ALARM, KEPT, ALARM, OK),
}
TABLE = [(3, row, answers) for row, answers in THREE_OF_THREE.items()] + [
    (2, row, answers) for row, answers in TWO_OF_THREE.items()
]

marks_of = st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=20)
shapes = st.sampled_from([(needed, of) for of in (1, 2, 3, 5, 15) for needed in range(1, of + 1)])
treatments = st.sampled_from(Treatment)
states = st.sampled_from(AlarmState)


def marks(row: str) -> list[Mark]:
    return [{"0": False, "X": True, "-": None}[mark] for mark in row.split()]


@pytest.mark.parametrize("current", AlarmState)
@pytest.mark.parametrize(("needed", "row", "answers"), TABLE, ids=[f"{m} of 3: {row}" for m, row, _ in TABLE])
def test_an_alarm_has_the_state_in_every_row_of_both_tables(
    needed: int, row: str, answers: tuple[AlarmState | None, ...], current: AlarmState
) -> None:
    told = [judge(marks(row), needed=needed, of=3, treatment=each, current=current) for each in TREATMENTS]
    assert told == [current if answer is KEPT else answer for answer in answers]


@pytest.mark.parametrize("row", ["- - - - X", "- - - X -"])
def test_a_single_recent_breach_is_not_yet_an_alarm(row: str) -> None:
    assert judge(marks(row), needed=3, of=3, treatment=Treatment.MISSING, current=OK) is INSUFFICIENT
    assert judge(marks(row), needed=3, of=3, treatment=Treatment.IGNORE, current=OK) is OK


def test_the_point_within_the_threshold_leaves_the_range_and_breaching_takes_over() -> None:
    before, after = "0 - - - -", "- - - - -"
    told = [judge(marks(row), needed=3, of=3, treatment=Treatment.BREACHING, current=OK) for row in (before, after)]
    assert told == [OK, ALARM]


@given(marks=marks_of, shape=shapes, treatment=treatments, current=states)
def test_a_range_without_data_changes_the_state_only_by_the_treatment_of_missing_data(
    marks: list[Mark], shape: tuple[int, int], treatment: Treatment, current: AlarmState
) -> None:
    needed, of = shape
    silent: list[Mark] = [None] * len(marks)
    told = judge(silent, needed=needed, of=of, treatment=treatment, current=current)
    assert told is {
        Treatment.MISSING: INSUFFICIENT,
        Treatment.IGNORE: current,
        Treatment.BREACHING: ALARM,
        Treatment.NOT_BREACHING: OK,
    }.get(treatment)


@given(marks=marks_of, shape=shapes, treatment=treatments)
def test_no_alarm_without_enough_breaching_points(
    marks: list[Mark], shape: tuple[int, int], treatment: Treatment
) -> None:
    """Two exceptions: missing data counts as breaching, or no real point has contradicted a breach since."""
    needed, of = shape
    told = judge(marks, needed=needed, of=of, treatment=treatment, current=OK)
    if treatment is Treatment.BREACHING or told is not ALARM:
        return
    real = [mark for mark in marks if mark is not None]
    unanswered = treatment is Treatment.MISSING and len(real) < of and all(real)
    assert real.count(True) >= needed or (unanswered and len(marks) - marks.index(True) >= needed)


@given(marks=st.lists(st.booleans(), min_size=15, max_size=20), shape=shapes, treatment=treatments, current=states)
def test_the_treatment_of_missing_data_does_not_matter_when_no_data_is_missing(
    marks: list[bool], shape: tuple[int, int], treatment: Treatment, current: AlarmState
) -> None:
    needed, of = shape
    told = judge(marks, needed=needed, of=of, treatment=treatment, current=current)
    assert told is (ALARM if sum(marks[-of:]) >= needed else OK)
