"""``karrot simulate``: a scaling recipe in front of a lag that was recorded."""
# ruff: noqa: PLC0415

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.common import stated, valid
from karrot.cli.scaling import scaling, scaling_options
from karrot.cli.simulated import Case, drawing, report, warnings

if TYPE_CHECKING:
    from karrot.autoscaling import Run, Sample, Stack
    from karrot.render.scaling import Scaling

__all__ = ["COMMANDS"]


@click.command("simulate")
@scaling_options
@click.option(
    "--series",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV: time, lag[, messages arriving per second].",
)
@click.option("--url", metavar="KARROT", help="A running Karrot, for the events it has of --group.")
@click.option("--tasks-then", type=click.IntRange(1), required=True, help="Tasks that consumed during the recording.")
@click.option("--rate-per-task", type=click.FloatRange(0, min_open=True), required=True, help="Messages/s of one task.")
@click.option("--kept-up-rate", type=click.FloatRange(0), help="Messages/s arriving while the group kept up.")
@click.option("--partitions", type=click.IntRange(1), help="Tasks beyond their number do nothing.")
@click.option(
    "--start-seconds", type=click.FloatRange(0), default=60, show_default=True, help="A new task takes these."
)
@click.option("--rebalance-seconds", type=click.FloatRange(0), default=0, show_default=True, help="All stand still.")
@click.option(
    "--scale-in",
    type=click.Choice(["one", "proportional"]),
    default="one",
    show_default=True,
    help="What target tracking takes away at a time: AWS does not say.",
)
@click.option(
    "--gaps",
    type=click.Choice(["zero", "dropped"]),
    default="zero",
    show_default=True,
    help="How metric math reads a missing value.",
)
@click.option("--svg", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Draw a chart there.")
def simulate(
    series: Path | None,
    url: str | None,
    svg: Path | None,
    **given: Any,
) -> None:
    """Run a scaling recipe on a lag that was recorded.

    Takes the options of `karrot render ecs-autoscaling` and runs the very template that it prints, on a model of
    CloudWatch's alarms and of the scaling policies: a model, not AWS. What arrived is worked out from the lag, from
    --tasks-then and from --rate-per-task; docs/simulate.md says what is assumed.
    """
    samples = valid(partial(_samples, series, url, given))
    case = valid(partial(_case, samples, given))
    run, still = _run(case), _run_still(case)
    for line in report(case, run, still):
        click.echo(line)
    for line in warnings(case, run):
        click.echo(f"warning: {line}", err=True)
    if svg is not None:
        stated(partial(svg.write_text, drawing(case, run), encoding="utf-8"))


for _parameter in simulate.params:
    if _parameter.name in ("burrow_cluster", "group"):  # a template needs these names, a recorded lag does not
        _parameter.required = False

COMMANDS = (simulate,)


def _samples(series: Path | None, url: str | None, given: dict[str, Any]) -> list["Sample"]:
    from karrot.cli.recorded import samples_from_file, samples_from_karrot

    if (series is None) == (url is None):
        raise ValueError("give either --series or --url")
    if series is not None:
        return samples_from_file(series)
    if given["group"] is None:
        raise ValueError("--url needs --group")
    return samples_from_karrot(str(url), given["burrow_cluster"], given["group"])


def _case(samples: list["Sample"], given: dict[str, Any]) -> Case:
    """What is simulated. Raises `ValueError` with a sentence."""
    from karrot import autoscaling

    tasks, rate, partitions = given.pop("tasks_then"), given.pop("rate_per_task"), given.pop("partitions")
    load = autoscaling.loaded(
        samples, tasks=min(tasks, partitions or tasks), rate_per_task=rate, kept_up_rate=given.pop("kept_up_rate")
    )
    consumers = autoscaling.Consumers(rate, given.pop("start_seconds"), given.pop("rebalance_seconds"), partitions)
    readings = {"gaps": autoscaling.Gaps(given.pop("gaps")), "scale_in": autoscaling.ScaleIn(given.pop("scale_in"))}
    asked = scaling(**_named(given))
    return Case(asked, _stack(asked, readings), load, consumers, tasks, given["group"])


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """A recipe has names in it; those that were not given play no part here."""
    scaled = ("asg_name",) if given["target"] == "asg" else ("ecs_cluster", "service")
    unnamed = [name for name in (*scaled, "burrow_cluster", "group") if given[name] is None]
    return given | dict.fromkeys(unnamed, "recorded")


def _stack(asked: "Scaling", readings: dict[str, Any]) -> "Stack":
    """The stack of the very template that ``karrot render ecs-autoscaling`` prints."""
    import yaml

    from karrot.autoscaling import from_cloudformation
    from karrot.render.autoscaling import autoscaling as rendered

    template = yaml.safe_load(rendered(asked, "cloudformation"))
    return from_cloudformation(template, limits=(asked.least, asked.max_tasks), **readings)


def _run(case: Case) -> "Run":
    from karrot.autoscaling import Publishing
    from karrot.autoscaling import simulate as simulated

    publishing = Publishing(every_s=10, delay_s=10, resolution_s=1) if case.asked.high_resolution else Publishing()
    return simulated(case.stack, case.load, case.consumers, tasks=case.tasks_then, publishing=publishing)


def _run_still(case: Case) -> "Run":
    """The recording itself: the tasks of then, and nobody who scales them."""
    from karrot.autoscaling import Stack
    from karrot.autoscaling import simulate as simulated

    nobody = Stack((), (), minimum=case.tasks_then, maximum=case.tasks_then)
    return simulated(nobody, case.load, case.consumers, tasks=case.tasks_then)
