"""``karrot simulate``: simulates one or more scaling recipes on a recorded lag."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from karrot.cli.errors import Refused, stated, valid
from karrot.cli.history.open_tables import read_tables, span_of
from karrot.cli.options import Number, karrot_option
from karrot.cli.render.aws import scaling, scaling_options
from karrot.cli.simulate.output import Case, Compared, comparison, drawing, report, warnings_of_load, warnings_of_run
from karrot.cli.table import print_lines

if TYPE_CHECKING:
    from karrot.autoscaling.arrival_rate import LagSample
    from karrot.autoscaling.simulation import Run


_OWN_OPTIONS = (
    "wake_up_lag",
    "min_tasks",
    "max_tasks",
    "scale_out_cooldown",
    "scale_in_cooldown",
    "high_resolution",
)


class Recipe(NamedTuple):
    """A recipe: its text as typed (``step:max-lag=100000,min-tasks=0``), its name, and its own options."""

    text: str
    name: str
    own: Mapping[str, str]


def _recipe(text: str) -> Recipe:
    """Read the text of a recipe. `_options_of` converts its options later."""
    from karrot.render.scaling_recipe import ALL_MEASURES, RECIPES

    name, _, rest = text.partition(":")
    if name not in RECIPES:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, RECIPES))}.")
    own, options = {}, (*ALL_MEASURES, *_OWN_OPTIONS)
    for each in filter(None, rest.split(",")):
        option, _, value = each.partition("=")
        if (attribute := option.strip().replace("-", "_")) not in options:
            known = ", ".join(other.replace("_", "-") for other in options)
            raise click.BadParameter(f"{option!r} is not an option of a recipe. The options are {known}.")
        own[attribute] = value or "true"
    return Recipe(text, name, own)


@click.command()
@scaling_options
@click.option(
    "--series",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read the lag from a CSV file: time, lag[, messages that arrive per second].",
)
@karrot_option(metavar="URL", help="Read the lag of --group from the running Karrot at this address.")
@click.option(
    "--tables",
    metavar="PLACE",
    callback=read_tables,
    help="Read the lag of --group in each minute from the pipeline's tables.",
)
@click.option("--from", "since", help="With --tables: start, in ISO 8601 (UTC) or as an age.", show_default="30d")
@click.option("--to", "until", help="With --tables: end, not included.", show_default="now")
@click.option("--tasks-then", type=click.IntRange(1), required=True, help="Number of tasks during the recording.")
@click.option(
    "--rate-per-task",
    type=Number(0, min_open=True),
    required=True,
    help="Messages per second that one task can consume.",
)
@click.option(
    "--kept-up-rate", type=Number(0), help="Messages that arrived per second while the group kept up (lag near 0)."
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions. If there are more tasks than partitions, the extra tasks stay idle.",
)
@click.option(
    "--start-seconds", type=Number(0), default=60, show_default=True, help="Seconds until a new task consumes."
)
@click.option(
    "--rebalance-seconds",
    type=Number(0),
    default=0,
    show_default=True,
    help="Seconds that all consumers pause during a rebalance.",
)
@click.option(
    "--scale-in",
    type=click.Choice(["one", "proportional"]),
    show_default="one; asg: proportional",
    help="How many tasks target tracking removes at once. For ECS, AWS does not document this number.",
)
@click.option(
    "--gaps",
    type=click.Choice(["zero", "dropped"]),
    default="zero",
    show_default=True,
    help="How metric math treats a missing value.",
)
@click.option(
    "--svg", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Draw a chart into this file."
)
def simulate(recipe: tuple[Recipe, ...], svg: Path | None, **given: Any) -> None:
    """Simulate one or more scaling recipes on a recorded lag.

    The command takes the same options as `karrot render ecs-autoscaling`, and simulates the alarms and policies that
    `karrot render ecs-autoscaling` prints. It uses a model of CloudWatch alarms and of Auto Scaling, not AWS itself. It
    calculates the arriving messages from the lag, --tasks-then and --rate-per-task. docs/simulate.md lists the
    assumptions of the model.

    Repeat --recipe to compare recipes. Each recipe can have its own options, for example
    `--recipe step:max-lag=100000,min-tasks=0`.
    """
    if svg is not None and len(recipe) > 1:
        raise Refused("--svg can draw only one recipe: give one --recipe")
    samples = valid(partial(_samples, given))
    cases = valid(partial(_cases, samples, recipe, given))
    for line in warnings_of_load(cases[0]):
        click.echo(f"warning: {line}", err=True)
    if len(cases) == 1:
        _show_one(cases[0], svg)
    else:
        _compare(cases)


for _at, _parameter in enumerate(simulate.params):
    if _parameter.name in ("burrow_cluster", "group"):  # a template needs these names, a recorded lag does not
        _parameter.required = False
    elif _parameter.name == "recipe":
        simulate.params[_at] = click.Option(
            ["--recipe"],
            callback=lambda _context, _option, given: tuple(map(_recipe, given)),
            required=True,
            multiple=True,
            metavar="NAME[:OPTION=VALUE,...]",
            help="Recipe: target-tracking, step or from-zero. Repeat the option to compare recipes.",
        )


def _show_one(case: Case, svg: Path | None) -> None:
    run = _run(case)
    print_lines(report(case, run, _run_still(case)))
    for line in warnings_of_run(case, run):
        click.echo(f"warning: {line}", err=True)
    if svg is not None:
        stated(partial(svg.write_text, drawing(case, run), encoding="utf-8"))


def _compare(cases: Sequence[Case]) -> None:
    """Simulate the recipes one after the other, and keep only the results."""
    compared = [Compared.of(_run_still(cases[0]), "as recorded")]
    for case in cases:
        run = _run(case)
        compared.append(Compared.of(run, case.text))
        for line in warnings_of_run(case, run):
            click.echo(f"warning: {case.text}: {line}", err=True)
    print_lines(comparison(cases[0], compared))


def _samples(given: dict[str, Any]) -> list["LagSample"]:
    from karrot.cli.simulate.lag_samples import samples_from_file, samples_from_karrot, samples_from_tables

    series, url, tables = (given.pop(name) for name in ("series", "url", "tables"))
    since, until = given.pop("since"), given.pop("until")
    if sum(each is not None for each in (series, url, tables)) != 1:
        raise ValueError("give exactly one of --series, --karrot and --tables")
    if tables is None and (since or until):
        raise ValueError("--from and --to need --tables")
    if series is not None:
        return samples_from_file(series)
    if given["group"] is None:
        raise ValueError(f"{'--tables' if url is None else '--karrot'} needs --group")
    if tables is not None:
        return samples_from_tables(
            tables, given["burrow_cluster"], given["group"], span_of(since or "30d", until or "now")
        )
    return samples_from_karrot(str(url), given["burrow_cluster"], given["group"])


def _cases(samples: list["LagSample"], recipes: tuple[Recipe, ...], given: dict[str, Any]) -> list[Case]:
    """Make the cases to simulate. Raises `ValueError` with a message for the user."""
    from karrot.autoscaling.arrival_rate import loaded
    from karrot.autoscaling.metric_math_evaluator import Gaps
    from karrot.autoscaling.policies import ScaleIn
    from karrot.autoscaling.simulation import Consumers
    from karrot.render.policies_and_alarms import stack_of

    tasks, rate, partitions = given.pop("tasks_then"), given.pop("rate_per_task"), given.pop("partitions")
    load = loaded(
        samples, tasks=min(tasks, partitions or tasks), rate_per_task=rate, kept_up_rate=given.pop("kept_up_rate")
    )
    consumers = Consumers(rate, given.pop("start_seconds"), given.pop("rebalance_seconds"), partitions)
    readings: dict[str, Any] = {
        "gaps": Gaps(given.pop("gaps")),
        "scale_in": None if (scale_in := given.pop("scale_in")) is None else ScaleIn(scale_in),
        "activity_s": consumers.start_s,
    }
    cases = []
    for recipe in recipes:
        asked = scaling(**_named(_options_of(recipe, given)))
        cases.append(Case(asked, stack_of(asked, **readings), load, consumers, tasks, given["group"], recipe.text))
    return cases


def _options_of(recipe: Recipe, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one recipe. They replace shared options. A measure of the recipe removes all shared measures."""
    from karrot.render.scaling_recipe import ALL_MEASURES

    parameters = {each.name: each for each in simulate.params}
    options = dict(shared) | {"recipe": recipe.name}
    if any(measure in recipe.own for measure in ALL_MEASURES):
        options |= dict.fromkeys(ALL_MEASURES)
    for name, text in recipe.own.items():
        options[name] = parameters[name].type.convert(text, parameters[name], None)
    return options


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """Fill in the names that a recipe needs but a simulation does not."""
    scaled = ("asg_name",) if given["target"] == "asg" else ("ecs_cluster", "service")
    unnamed = [name for name in (*scaled, "burrow_cluster", "group") if given[name] is None]
    return given | dict.fromkeys(unnamed, "recorded")


def _run(case: Case) -> "Run":
    from karrot.autoscaling.simulation import Publishing
    from karrot.autoscaling.simulation import simulate as simulated

    publishing = Publishing(every_s=10, delay_s=10, resolution_s=1) if case.asked.high_resolution else Publishing()
    return simulated(case.stack, case.load, case.consumers, tasks=case.tasks_then, publishing=publishing)


def _run_still(case: Case) -> "Run":
    """Simulate the recording itself, with its constant number of tasks."""
    from karrot.autoscaling.scalable_target import Stack
    from karrot.autoscaling.simulation import simulate as simulated

    nobody = Stack((), (), minimum=case.tasks_then, maximum=case.tasks_then)
    return simulated(nobody, case.load, case.consumers, tasks=case.tasks_then)
