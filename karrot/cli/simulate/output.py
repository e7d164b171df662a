"""Formats the output of ``karrot simulate``: tables, warnings and a chart."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Self

from karrot.cli.table import Column, PrintedTable
from karrot.text import count, to_minute

if TYPE_CHECKING:
    from karrot.autoscaling.arrival_rate import Load
    from karrot.autoscaling.scalable_target import Stack
    from karrot.autoscaling.simulation import Consumers, Run
    from karrot.autoscaling.simulation_totals import RunSummary
    from karrot.render.scaling_recipe import Scaling


_LONG_GAP_SECONDS = 300
_CHANGES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, the stack that it creates, and the load to simulate."""

    asked: "Scaling"
    stack: "Stack"
    load: "Load"
    consumers: "Consumers"
    tasks_then: int
    group: str | None = None
    text: str = ""
    """The recipe as the user typed it."""

    @property
    def unit(self) -> str:
        """The word for what the recipe scales: tasks or instances."""
        return "tasks" if self.asked.on_ecs else "instances"

    @property
    def title(self) -> str:
        """The recipe and the group of the recorded lag, in words."""
        return f"{self.asked.recipe} on {f'the lag of {self.group}' if self.group else 'a recorded lag'}"


def report(case: Case, run: "Run", still: "Run") -> Iterator[str]:
    """The lines for one recipe. ``still`` is a run of the same load with the recorded number of tasks."""
    yield f"{case.title}, {case.stack.minimum} to {case.stack.maximum} {case.unit}"
    yield f"recording  {_span(case.load)}, {len(case.load.samples)} samples"
    yield f"assumed    {case.tasks_then} {case.unit} then, each taking {case.consumers.rate_per_task:g} messages/s"
    yield ""
    yield from _in_columns(_figures(case, run, still), numbers=range(1, 3))
    yield ""
    yield from _in_columns(_changes(case, run), numbers=range(1, 3)) if run.activities else ("Nothing was scaled.",)
    if len(run.activities) > _CHANGES_SHOWN:
        yield f"and {len(run.activities) - _CHANGES_SHOWN} more changes"


def _figures(case: Case, run: "Run", still: "Run") -> Iterator[tuple[str, ...]]:
    was, now = still.summary, run.summary
    yield "", "as recorded", "with the recipe"
    yield "peak lag", count(case.load.peak.lag), count(now.peak_lag)
    yield "peak lag in seconds", count(was.peak_lag_seconds), count(now.peak_lag_seconds)
    yield "lag at the end", count(case.load.samples[-1].lag), count(now.last_lag)
    yield case.unit, str(case.tasks_then), f"{now.least_tasks} to {now.most_tasks}"
    yield f"{case.unit[:-1]}-hours", f"{was.task_hours:.1f}", f"{now.task_hours:.1f}"
    yield "minutes at the most", "", f"{now.at_maximum_s / 60:.0f}"
    yield "scaled out, in", "", f"{now.scale_outs}, {now.scale_ins}"
    yield "flaps", "", str(now.flaps)


def _changes(case: Case, run: "Run") -> Iterator[tuple[str, ...]]:
    yield "time (UTC)", case.unit, "lag", "alarm"
    for change in run.activities[:_CHANGES_SHOWN]:
        moment = next(each for each in run.moments if each.at_s >= change.at_s)
        yield _to_minute(change.at_s), f"{change.before} to {change.after}", count(moment.lag), change.alarm


class Compared(NamedTuple):
    """One line of a comparison: its label and the results of its run."""

    label: str
    tasks: str
    summary: "RunSummary"

    @classmethod
    def of(cls, run: "Run", label: str) -> Self:
        """Make the line of a run."""
        least, most = run.summary.least_tasks, run.summary.most_tasks
        return cls(label, str(least) if least == most else f"{least} to {most}", run.summary)


def comparison(case: Case, compared: Sequence[Compared]) -> Iterator[str]:
    """The lines that compare several recipes. The first line is the recording."""
    yield f"{len(compared) - 1} recipes on {f'the lag of {case.group}' if case.group else 'a recorded lag'}"
    yield f"recording  {_span(case.load)}, {len(case.load.samples)} samples, peak lag {count(case.load.peak.lag)}"
    yield f"assumed    {case.tasks_then} {case.unit} then, each taking {case.consumers.rate_per_task:g} messages/s"
    yield ""
    hours = f"{case.unit[:-1]}-hours"
    head = ("recipe", case.unit, "peak lag", "in seconds", hours, "flaps", "out, in", "at most (min)")
    yield from _in_columns([head, *map(_cells, compared)], numbers=range(1, len(head)))


def _cells(one: Compared) -> tuple[str, ...]:
    summary = one.summary
    scaled = bool(summary.scale_outs or summary.scale_ins) or one.label != "as recorded"
    return (
        one.label,
        one.tasks,
        count(summary.peak_lag),
        count(summary.peak_lag_seconds),
        f"{summary.task_hours:,.1f}",
        *((str(summary.flaps), f"{summary.scale_outs}, {summary.scale_ins}") if scaled else ("", "")),
        f"{summary.at_maximum_s / 60:,.0f}" if scaled else "",
    )


def warnings_of_load(case: Case) -> Iterator[str]:
    """The reasons why no result on this recording is exact, one sentence each."""
    load = case.load
    if load.contradictions:
        yield (
            f"{load.contradictions} of {len(load.rates)} times the lag fell faster than {case.tasks_then} {case.unit} "
            "can consume: --rate-per-task or --tasks-then is too low"
        )
    if load.longest_gap_s > _LONG_GAP_SECONDS:
        yield (
            f"gaps between samples are up to {load.longest_gap_s / 60:.0f} minutes long; the simulation assumes a "
            "constant arrival rate in a gap"
        )
    if load.longest_gap_s > load.silence_s:
        yield f"in gaps of more than {load.silence_s / 60:.0f} minutes, the simulated Karrot sends nothing"


def warnings_of_run(case: Case, run: "Run") -> Iterator[str]:
    """The reasons why the result of one recipe is less exact, one sentence each."""
    from karrot.autoscaling.scalable_target import NotScaled

    stack = case.stack
    if not stack.minimum <= case.tasks_then <= stack.maximum:
        yield (f"the recipe begins with {run.moments[0].desired} {case.unit}, but the recording had {case.tasks_then}")
    for metric in sorted(run.unknown_metrics):
        yield f"{metric.namespace} {metric.name} is not simulated: its alarms see no data"
    if run.not_scaled.get(NotScaled.NO_STEP):
        yield f"{run.not_scaled[NotScaled.NO_STEP]} times no step covered the lag, so nothing was scaled"


def drawing(case: Case, run: "Run") -> str:
    """Draw the chart as SVG."""
    from karrot.autoscaling.simulation_chart import chart_of
    from karrot.render.jinja_templates import rendered

    return rendered(
        "simulate/run.svg.j2",
        chart=chart_of(run, case.load, case.stack.maximum),
        title=case.title,
        description=_described(case, run),
        unit=case.unit.capitalize(),
    )


def _described(case: Case, run: "Run") -> str:
    peak, before = count(run.summary.peak_lag), count(case.load.peak.lag)
    return (
        f"{_span(case.load)}: peak lag {peak}, recorded {before}; "
        f"{run.summary.task_hours:.1f} {case.unit[:-1]}-hours, {run.summary.flaps} flaps"
    )


def _span(load: "Load") -> str:
    return f"{_to_minute(load.start_s)} to {_to_minute(load.end_s)} UTC"


def _to_minute(at_s: float) -> str:
    return to_minute(datetime.fromtimestamp(at_s, UTC))


def _in_columns(rows: Iterable[Sequence[str]], numbers: range) -> Iterator[str]:
    """The lines of a table. The first row has the headings. The columns in ``numbers`` are aligned to the right."""
    head, *others = ({str(at): text for at, text in enumerate(row)} for row in rows)
    columns = [Column(text, at, str, is_number=int(at) in numbers) for at, text in head.items()]
    return PrintedTable(columns, others).lines()
