from hypothesis import given
from hypothesis import strategies as st

from karrot.autoscaling.scalable_target import Activity
from karrot.autoscaling.simulation_totals import Account, Moment


@st.composite
def runs(draw: st.DrawFn) -> list[Moment]:
    lags = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
    tasks = draw(st.lists(st.integers(0, 4), min_size=len(lags), max_size=len(lags)))
    return [Moment(at * 10.0, lag, lag / 2, task, task) for at, (lag, task) in enumerate(zip(lags, tasks, strict=True))]


@given(steps=runs())
def test_the_totals_are_computed_from_all_steps(steps: list[Moment]) -> None:
    account = Account(maximum=4, count=len(steps) - 1)
    account.take(steps)
    told = account.summary([])
    assert told.peak_lag == max(step.lag for step in steps)
    assert told.peak_lag_seconds == told.peak_lag / 2
    assert (told.last_lag, told.least_tasks) == (steps[-1].lag, min(step.desired for step in steps))
    assert told.most_tasks == max(step.desired for step in steps)
    assert abs(told.task_hours - sum(step.desired for step in steps[:-1]) * 10 / 3600) < 1e-9
    assert told.at_maximum_s == 10 * sum(step.desired == 4 for step in steps[:-1])
    moments = account.moments()
    assert (moments[0], moments[-1].at_s) == (steps[0], steps[-1].at_s)
    assert max(moment.lag for moment in moments) == told.peak_lag
    assert len(moments) == 1 + -(-(len(steps) - 1) // 6)


def test_the_memory_of_the_totals_does_not_grow_with_the_run() -> None:
    account = Account(maximum=4, count=100_000)
    account.take(Moment(at * 10.0, at == 77_777, 0, 1, 1) for at in range(100_001))
    assert len(account.moments()) == 1430
    assert max(moment.lag for moment in account.moments()) == 1
    assert account.summary([]).task_hours == 1_000_000 / 3600


def test_a_flap_is_a_scale_out_within_half_an_hour_after_a_scale_in() -> None:
    account = Account(maximum=4, count=0)
    account.take([Moment(0, 0, 0, 1, 1)])
    changes = [(0, 2, 3), (100, 3, 2), (1900, 2, 3), (2000, 3, 2), (3801, 2, 3)]
    summary = account.summary(Activity(at, "p", "a", before, after) for at, before, after in changes)
    assert (summary.scale_outs, summary.scale_ins, summary.flaps) == (3, 2, 1)
