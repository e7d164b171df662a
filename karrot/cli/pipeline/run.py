"""``karrot pipeline run``: keeps the tables up to date, in one long-running process or once."""

import json
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals, valid
from karrot.cli.options import Number, day_option, json_option, name_option, read_span
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import explained
from karrot.cli.pipeline.offsets import OffsetsFromKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.derive.job import DeriveRules
    from karrot.pipeline.run.step_loop import StepFailure, StepResult, Work


_STEPS: Final = {
    "events": ("writes new events from the archive or a topic", ("source", "archive", "topic", "checkpoint")),
    "offsets": ("writes Kafka's committed offsets and log ends", ("cluster", "json_topic", "ends_every")),
    "derive": (
        "computes the other tables again for the days that changed",
        ("days", "silence", "longest_gap", "target_seconds", "objective"),
    ),
    "compact": ("merges the small files of past days, and removes old days", ("compact_at", "keep")),
    "report": ("writes an HTML report of the last seven days", ("output",)),
}
"""The steps in their order: what each does, and the options that only it has."""

_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_LOOK_S: Final = 2
_TEN_YEARS_S: Final = 10 * 365 * 86_400


def _time_of_day(_context: click.Context, option: click.Parameter, text: str) -> time | None:
    if text == "never":
        return None
    if matched := _TIME.fullmatch(text):
        return time(int(matched[1]), int(matched[2]))
    raise click.BadParameter(f"{text!r} is not a time: write HH:MM or never", param=option)


@click.command(
    cls=shared.CommandInSections,
    sections={f"The step {step} {does}": names for step, (does, names) in _STEPS.items()},
    short_help="Keep the tables up to date, in turns or once.",
)
@click.option("--follow/--once", default=True, help="Run turns until Ctrl-C, or run one turn and end.")
@click.option(
    "--only",
    multiple=True,
    callback=shared.read_words("step", _STEPS),
    metavar="STEP,...",
    help="Run only these steps. Repeatable.  [default: events, derive and compact, and the steps with --offsets and "
    "--report]",
)
@click.option("--every", default="15m", callback=read_span(86_400), help="Time between the starts of two turns.")
@shared.spark_options
@shared.kafka_options
@shared.wait_option
@json_option("Print the result of each step as one line of JSON.")
@shared.metrics_port_option
@click.option(
    "--turn-limit",
    default="6h",
    callback=read_span(30 * 86_400),
    help="With --metrics-port: /healthz fails if a turn takes longer than this.",
)
@shared.event_options
@shared.checkpoint_option(help="Folder that records which events were read.  [default: a folder in the tables]")
@name_option(
    "--offsets",
    "cluster",
    help="Write the committed offsets of the Kafka cluster at --bootstrap-servers, as karrot pipeline offsets does. "
    "NAME is the name of the cluster in the tables.",
)
@click.option("--json-topic", metavar="TOPIC", help="Also publish each commit to this topic, as JSON.")
@click.option("--ends-every", default="30s", callback=read_span(86_400), help="How often to sample log end offsets.")
@day_option("--day", "days", multiple=True, help="Derive only this day (UTC), even if it did not change. Repeatable.")
@click.option(
    "--stale-after",
    "silence",
    default="300s",
    callback=read_span(_TEN_YEARS_S),
    help="How long a verdict is valid. Use the value of the service's KARROT_STALE_AFTER.",
)
@click.option(
    "--longest-gap",
    default="600s",
    callback=read_span(86_400),  # at most a day, because derive reads a day with the days before and after it
    help="Longest time between two samples of a partition from which a rate is calculated.",
)
@click.option(
    "--max-lag-seconds", "target_seconds", type=Number(0), default=60, help="SLO: largest allowed lag in seconds."
)
@click.option(
    "--objective",
    type=Number(0, 1, max_open=True),
    default=0.99,
    help="SLO: share of the minutes in which the lag must not be above --max-lag-seconds.",
)
@click.option(
    "--compact-at",
    default="02:30",
    callback=_time_of_day,
    metavar="HH:MM|never",
    help="The first turn after this time of the day (UTC) compacts. With --once --only compact, the turn always does.",
)
@click.option(
    "--keep",
    default="400d",
    callback=read_span(_TEN_YEARS_S),
    help="Remove days that are older than this from every table.",
)
@click.option(
    "--report",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report of the last seven days to this HTML file, as karrot history report does.",
)
@click.pass_context
def run(context: click.Context, /, **asked: Any) -> None:
    """Keep the tables up to date until Ctrl-C or SIGTERM, or once.

    Each turn runs the steps events, offsets (with --offsets), derive, compact (once a day) and report (with --report).
    The command counts every event: lines read = events + quarantined + duplicates. It reads no event twice, even after
    a crash. Only one command at a time can write a table.

    A step that fails does not stop the other steps. It is logged and counted, and the next turn tries again: after one
    minute, and after more failures later and later. After a signal, the command finishes the step, or abandons it after
    20 s. Then it exits with 0, and the next start continues. With --once, a signal ends the command at once.

    With --once, the exit code is 1 if a step failed, also because another command writes the same tables, and 2 if
    there is nothing to read. Without --once, it is 1 if no later turn can succeed (for example, because Spark has
    ended). It is always 2 if Spark cannot run here or an option is wrong.
    """
    from karrot import logs
    from karrot.clock import SystemClock
    from karrot.pipeline.run.step_loop import LAST_SUCCESS, RunMetrics, TurnLoop

    steps = _chosen(context, asked)
    open_source = shared.event_source_of(asked) if "events" in steps else None
    reached = shared.kafka_of(asked, "karrot-offsets") if "offsets" in steps else None
    logs.configure("INFO", sys.stderr)
    clock, stop = SystemClock(), threading.Event()
    metrics = RunMetrics(started_s=clock.wall_ms() / 1000, interval_s=asked["every"].total_seconds())
    turns = TurnLoop(asked["every"], clock, metrics, stop, partial(_tell, asked))
    problem = partial(turns.problem, asked["turn_limit"])
    with shared.served(asked["metrics_port"], metrics, problem), shared.started("run", asked) as (spark, tables):
        from karrot.pipeline.run import pipeline_steps
        from karrot.pipeline.run.step_loop import CannotContinue
        from karrot.pipeline.store.hadoop_filesystem import exists
        from karrot.pipeline.stream.streaming_queries import repeated

        # A misspelt name must not count as empty tables.
        if not {"events", "offsets"} & {*steps} and not exists(spark, tables.directory):
            raise Refused(f"{asked['directory']}: no such directory; karrot pipeline run makes the tables")
        if asked["follow"]:
            end_on_signals(stop)
        jobs = pipeline_steps.Jobs(spark, tables, clock, metrics, asked["wait"])
        if (before := jobs.last_success()) is not None:
            metrics.set(LAST_SUCCESS, min(before, clock.wall_ms() / 1000))
        turns.explain, turns.is_alive = partial(_explained, spark, asked), partial(pipeline_steps.is_alive, spark)
        if not _is_by_hand(asked):
            turns.remember = jobs.remember_success
        at = None if _is_by_hand(asked) else asked["compact_at"]
        works: dict[str, Work] = {
            "derive": partial(jobs.derive, _rules_of(asked), [day.date() for day in asked["days"]]),
            "compact": partial(jobs.compact, asked["keep"], at),
            "report": partial(jobs.report, asked["output"]),
        }
        if open_source is not None:
            works["events"] = partial(jobs.events, open_source, asked["checkpoint"] or "")
        with ExitStack() as beside:
            beside.enter_context(pipeline_steps.ended_in_time(spark, stop))
            if reached is not None:
                tell = partial(pipeline_steps.log_poll, metrics)
                offsets = OffsetsFromKafka(asked["cluster"], reached, asked["ends_every"], asked["json_topic"], tell)
                polls = offsets.polls(spark, tables, stop)
                works["offsets"] = partial(jobs.offsets, offsets.cluster, partial(offsets.job, spark, polls=polls))
                if asked["follow"]:
                    poll = partial(pipeline_steps.poll_if_due, jobs, offsets.cluster, polls, turns)
                    beside.enter_context(repeated(poll, stop))
            turns.steps = {step: works[step] for step in steps}
            try:
                with repeated(turns.require_alive, stop, _LOOK_S):
                    failed = turns.run() if asked["follow"] else turns.turn()
            except CannotContinue as error:
                raise NotDone(str(error)) from error
    if failed:
        ending = Refused if any(each.is_refused for each in failed) else NotDone
        raise ending("\n".join(each.reason for each in failed))


def _chosen(context: click.Context, asked: Mapping[str, Any]) -> list[str]:
    """Return the steps of a turn. Raises Refused for an option that does not go with them."""
    from karrot.settings.types import checked, tables_place

    needs = {"offsets": ("--offsets", "NAME", asked["cluster"]), "report": ("--report", "FILE", asked["output"])}
    for step, (option, value, given) in needs.items():
        if step in asked["only"] and given is None:
            raise Refused(f"--only {step} needs {option} {value}")
    steps = asked["only"] or [step for step in _STEPS if step not in needs or needs[step][2] is not None]
    for step, (_, of_step) in _STEPS.items():
        if step not in steps and (wrong := shared.given(context, of_step)):
            raise Refused(f"{wrong[0]} needs {'the step ' + step if asked['only'] else needs[step][0]}")
    if asked["source"] != shared.KAFKA and shared.given(context, ("topic",)):
        raise Refused("--topic needs --source kafka")
    if asked["follow"] and asked["days"]:
        raise Refused("--day needs --once")
    if "report" in steps:
        valid(partial(checked, tables_place, "with --report, --tables", asked["directory"]))
    never = asked["compact_at"] is None and not _is_by_hand(asked)
    return [step for step in steps if step != "compact" or not never]


def _is_by_hand(asked: Mapping[str, Any]) -> bool:
    """Whether chosen steps run once: they compact at any time of the day, and are no turn that an alert waits for."""
    return bool(asked["only"]) and not asked["follow"]


def _rules_of(asked: Mapping[str, Any]) -> "DeriveRules":
    from karrot.pipeline.derive.job import DeriveRules
    from karrot.pipeline.derive.slo_daily import Objective

    return DeriveRules(asked["silence"], asked["longest_gap"], Objective(asked["target_seconds"], asked["objective"]))


def _tell(asked: Mapping[str, Any], step: str, outcome: "StepResult | StepFailure", seconds: float) -> None:
    """Print what a step did, or log it in a long-running process. The failures of a single turn end the command."""
    from karrot.pipeline.run.step_loop import StepResult, log_outcome

    if isinstance(outcome, StepResult) and (asked["as_json"] or not asked["follow"]):
        click.echo(json.dumps({"step": step, **outcome.details}) if asked["as_json"] else outcome.text)
    elif asked["follow"]:
        log_outcome(step, outcome, seconds)


def _explained(spark: "SparkSession", asked: Mapping[str, Any], step: str, error: Exception) -> "StepFailure":
    """Return the failure of a step, and log an unexpected error."""
    import structlog

    from karrot.pipeline.run.pipeline_steps import is_alive
    from karrot.pipeline.run.step_loop import StepFailure

    failure = explained(error, asked)
    if failure is None:
        structlog.get_logger(__name__).error("a step failed unexpectedly", code="step_unexpected", exc_info=error)
        failure = StepFailure("failed", f"{type(error).__name__}: {error}")
    if failure.code != "lease_held" and not is_alive(spark):
        return StepFailure("failed", f"Spark has ended: {failure.reason}", is_final=True)
    is_away = step == "events" and isinstance(error, FileNotFoundError)
    return failure._replace(code="source_away") if is_away else failure
