"""Computes the chart of a simulation: lines, axes and labels in pixels."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from karrot.autoscaling.arrival_rate import Load
from karrot.autoscaling.simulation import Run

WIDTH, LEFT, RIGHT = 960, 64, 24
_PLOT = WIDTH - LEFT - RIGHT
_LAG_TOP, _LAG_HEIGHT = 88, 190
_TASKS_TOP, _TASKS_HEIGHT = 314, 110
_MINUTE, _DAY = 60, 86_400
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)
_MAX_TIMES = 9


class Label(NamedTuple):
    """A label at a position on an axis."""

    at: float
    text: str


class Panel(NamedTuple):
    """One plot of the chart: its position and its grid."""

    top: int
    height: int
    ticks: tuple[Label, ...]


class RunChart(NamedTuple):
    """All values for the SVG template. Paths are in SVG's path syntax."""

    width: int
    left: int
    right: int
    lag: Panel
    tasks: Panel
    times: tuple[Label, ...]
    recorded: str
    simulated: str
    simulated_area: str
    desired: str
    running: str
    maximum_y: float


def chart_of(run: Run, load: Load, maximum: int) -> RunChart:
    """The chart of a simulation, with the recorded lag and the maximum number of tasks."""
    across = _Scale(load.start_s, load.end_s, LEFT, _PLOT)
    most_lag = max(run.summary.peak_lag, load.peak.lag)
    lag, lag_up = _panel(_LAG_TOP, _LAG_HEIGHT, most_lag, whole=False)
    tasks, tasks_up = _panel(_TASKS_TOP, _TASKS_HEIGHT, max(maximum, run.summary.most_tasks), whole=True)
    simulated = [(across.of(each.at_s), lag_up.of(each.lag)) for each in run.moments]
    floor = _LAG_TOP + _LAG_HEIGHT
    return RunChart(
        width=WIDTH,
        left=LEFT,
        right=WIDTH - RIGHT,
        lag=lag,
        tasks=tasks,
        times=tuple(_times(load.start_s, load.end_s, across)),
        recorded=_line((across.of(each.at_s), lag_up.of(each.lag)) for each in load.samples),
        simulated=_line(simulated),
        simulated_area=_line([(simulated[0][0], floor), *simulated, (simulated[-1][0], floor)]) + "Z",
        desired=_stairs([(across.of(each.at_s), tasks_up.of(each.desired)) for each in run.moments]),
        running=_stairs([(across.of(each.at_s), tasks_up.of(each.running)) for each in run.moments]),
        maximum_y=tasks_up.of(maximum),
    )


class _Scale(NamedTuple):
    """Converts values to pixels; a negative length goes up."""

    least: float
    most: float
    start: float
    length: float

    def of(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        return round(self.start + self.length * share, 1)


def _panel(top: int, height: int, most: float, *, whole: bool) -> tuple[Panel, _Scale]:
    step = _step(max(most, 1), whole=whole)
    count = math.ceil(max(most, 1) / step)
    scale = _Scale(0, count * step, top + height, -height)
    ticks = tuple(Label(scale.of(at * step), _short(at * step)) for at in range(count + 1))
    return Panel(top, height, ticks), scale


def _step(most: float, *, whole: bool) -> float:
    """A round step that makes at most five ticks."""
    magnitude = math.pow(10, math.floor(math.log10(most / 5)))
    step = next(each * magnitude for each in (1, 2, 2.5, 5, 10) if most <= 5 * each * magnitude)
    return max(1, math.ceil(step)) if whole else step


def _short(value: float) -> str:
    """A short form of a number: 1500000 is 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _times(start_s: float, end_s: float, across: _Scale) -> Iterable[Label]:
    minutes = (end_s - start_s) / _MINUTE
    step_s = _MINUTE * next((step for step in _TIME_STEPS if minutes / step <= _MAX_TIMES), _TIME_STEPS[-1])
    shown = "%d %b" if step_s >= _DAY else "%d %b %H:%M" if end_s - start_s > 2 * _DAY else "%H:%M"
    at_s = math.ceil(start_s / step_s) * step_s
    while at_s <= end_s:
        yield Label(across.of(at_s), datetime.fromtimestamp(at_s, UTC).strftime(shown))
        at_s += step_s


def _line(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _stairs(points: Sequence[tuple[float, float]]) -> str:
    """The path of a step curve: each value holds until the next one."""
    turns = [f"H{later_x:g}V{later_y:g}" for (_, y), (later_x, later_y) in pairwise(points) if later_y != y]
    first_x, first_y = points[0]
    return f"M{first_x:g} {first_y:g}{''.join(turns)}H{points[-1][0]:g}"
