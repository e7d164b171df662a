"""Metric math, above all its results for missing values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.autoscaling.metric_math_evaluator import Expression, Gaps, UnsupportedExpressionError
from support.autoscaling.metric_statistics import Values

LAG = [None, 100.0, 200.0, None, 400.0]
TASKS = [None, 2.0, None, 4.0, 0.0]


def values(text: str, gaps: Gaps = Gaps.ZERO, **series: Values) -> Values:
    given = {"lag": LAG, "tasks": TASKS} | series
    return Expression.parse(text).values(given, 5, gaps)


@pytest.mark.parametrize(
    ("text", "as_zero", "dropped"),
    [
        ("lag / tasks", [None, 50, None, 0, None], [None, 50, None, None, None]),
        ("lag < tasks", [None, 0, 0, 1, 0], [None, 0, None, None, 0]),
        ("lag * 2", [None, 200, 400, None, 800], [None, 200, 400, None, 800]),
        ("IF(FILL(tasks, 0) < 1, lag, 0)", [0, 0, 200, 0, 400], [None, 0, 200, 0, 400]),
    ],
)
def test_a_missing_value_counts_as_zero_or_drops_the_point(text: str, as_zero: Values, dropped: Values) -> None:
    assert values(text) == as_zero
    assert values(text, Gaps.DROPPED) == dropped


@pytest.mark.parametrize("gaps", Gaps)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FILL(lag, REPEAT)", [None, 100, 200, 200, 400]),
        ("FILL(lag, 0)", [0, 100, 200, 0, 400]),
        ("FILL(FILL(lag, REPEAT), 7)", [7, 100, 200, 200, 400]),
        ("FILL(lag, tasks)", [None, 100, 200, 4, 400]),
        ("IF(1 < FILL(tasks, 0), 7, lag)", [None, 7, 200, 7, 400]),
        ("IF(lag < 150, 1, 0)", [None, 1, 0, None, 0]),
        ("2 * 3 / 4", [1.5, 1.5, 1.5, 1.5, 1.5]),
        ("1 / 0", [None, None, None, None, None]),
    ],
)
def test_both_readings_of_missing_values_agree_elsewhere(text: str, expected: Values, gaps: Gaps) -> None:
    assert values(text, gaps) == expected


@pytest.mark.parametrize("gaps", Gaps)
def test_an_expression_that_counts_the_points_of_a_lag_never_invents_a_lag(gaps: Gaps) -> None:
    points = [None, 2.0, 2.0, None, 2.0]
    assert values("lag / (tasks * points / points)", gaps, points=points) == [None, 50, None, None, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IF(metric1, metric2, metric3)", [30, 0, 20, None, None]),
        ("IF(metric1, 5, metric3)", [5, 5, 20, None, None]),
        ("IF(metric1, metric2, 5)", [30, 0, 5, 5, None]),
    ],
)
def test_if_gives_the_results_in_the_tables_of_the_user_guide(text: str, expected: Values) -> None:
    """Its section "Using IF expressions"."""
    metric1: Values = [1, 1, 0, 0, None]
    metric2: Values = [30, None, 0, 0, 30]
    metric3: Values = [0, 0, 20, None, 20]
    assert values(text, metric1=metric1, metric2=metric2, metric3=metric3) == expected


def test_the_names_are_those_of_metrics_and_other_expressions() -> None:
    assert Expression.parse("IF(FILL(m1, REPEAT) < 1, e2, m3 / 2)").names == {"m1", "e2", "m3"}


@pytest.mark.parametrize(
    "text",
    [pytest.param("", id="an empty expression"),
     "lag /", "METRICS()", "RATE(lag)", "MAX([lag, 1])", "lag + 1", "lag > 1", "lag ^ 2", "'text'", "FILL(lag)",
     "-lag", "lag < 1 AND tasks < 1", "lag < 1 and tasks < 1", "lag.real",
     "1 < lag < 2", "__import__('os')", "[lag]", "lag if tasks else 0", "True"],
)  # fmt: skip
def test_an_expression_that_is_not_modelled_is_refused_when_it_is_parsed(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError):
        Expression.parse(text)


@given(lag=st.lists(st.none() | st.floats(0, 1e9), min_size=5, max_size=5), gaps=st.sampled_from(Gaps))
def test_missing_values_never_produce_a_value(lag: Values, gaps: Gaps) -> None:
    for text in ("lag / 2", "lag < 1", "IF(lag < 1, 0, lag)", "lag * lag"):
        told = values(text, gaps, lag=lag)
        assert [value is None for value in told] == [value is None for value in lag]
