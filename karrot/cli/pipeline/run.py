"""``karrot pipeline run``: keeps the tables up to date in one long-running process."""

import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.errors import NotDone, Refused, end_on_signals
from karrot.cli.options import follow_option, name_option, read_span
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand, in_a_sentence
from karrot.cli.pipeline.offsets import OffsetsFromKafka
from karrot.cli.pipeline.table_steps import derive_options, keep_option, rules_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrot.pipeline.ingest.event_sources import EventSource
    from karrot.pipeline.offsets.log_ends import EndsPoll
    from karrot.pipeline.run.pipeline_steps import Jobs
    from karrot.pipeline.run.step_loop import Step, StepFailure


_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_NO_SPACE: Final = re.compile(r"No space left|Disk quota exceeded")
_NO_HEAP: Final = "OutOfMemoryError"
_LOOK_S: Final = 2


def _time_of_day(_context: click.Context, option: click.Parameter, text: str) -> time | None:
    if text == "never":
        return None
    if matched := _TIME.fullmatch(text):
        return time(int(matched[1]), int(matched[2]))
    raise click.BadParameter(f"{text!r} is not a time: write HH:MM or never", param=option)


@click.command(cls=JobCommand, short_help="Run ingest, derive and compact in turns, in one process.")
@shared.event_source_options
@shared.spark_options
@click.option("--every", default="15m", callback=read_span(86_400), help="Time between the starts of two turns.")
@follow_option(
    "Run turns until Ctrl-C, or run one turn and end. With --once, the exit code is 1 if a step failed.", default=True
)
@click.option(
    "--compact-at",
    default="02:30",
    callback=_time_of_day,
    metavar="HH:MM|never",
    help="The first turn after this time of the day (UTC) also compacts the tables.",
)
@keep_option
@derive_options
@name_option(
    "--offsets",
    "cluster",
    help="In each turn, also write the committed offsets of the Kafka cluster at --bootstrap-servers, as karrot "
    "pipeline offsets does. NAME is the name of the cluster in the tables.",
)
@click.option("--json-topic", metavar="TOPIC", help="With --offsets: also publish each commit to this topic, as JSON.")
@click.option(
    "--ends-every",
    default="30s",
    callback=read_span(86_400),
    help="With --offsets: how often to sample log end offsets.",
)
@shared.checkpoint_option(help="Folder that records which events were read.  [default: a folder in the tables]")
@shared.metrics_port_option
@click.option(
    "--turn-limit",
    default="6h",
    callback=read_span(30 * 86_400),
    help="With --metrics-port: /healthz fails if a turn takes longer than this.",
)
def run(**asked: Any) -> None:
    """Keep the tables up to date until Ctrl-C or SIGTERM.

    Each turn runs ingest and then derive. The first turn after --compact-at also runs compact. With --offsets, a turn
    also runs offsets before derive. The options of these commands have the same meaning here.

    A step that fails is logged and counted, and the next turn tries again: after one minute, and after more failures
    later and later. After a signal, the command finishes the step, or abandons it after 20 s. Then it exits with 0, and
    the next start continues.

    The exit code is 1 if no later turn can succeed (for example, because Spark has ended) and 2 if Spark cannot run
    here or an option is wrong.
    """
    from karrot import logs
    from karrot.clock import SystemClock
    from karrot.pipeline.run.step_loop import LAST_SUCCESS, RunMetrics, TurnHealth

    open_source, offsets = shared.event_source_of(asked), _offsets_of(asked)
    logs.configure("INFO", sys.stderr)
    clock, stop = SystemClock(), threading.Event()
    metrics = RunMetrics(started_s=clock.wall_ms() / 1000, interval_s=asked["every"].total_seconds())
    health = TurnHealth(clock, asked["turn_limit"])
    with shared.served(asked["metrics_port"], metrics, health), shared.started("run", asked) as (spark, tables):
        from karrot.pipeline.run import pipeline_steps
        from karrot.pipeline.run.step_loop import CannotContinue, TurnLoop
        from karrot.pipeline.stream.streaming_queries import repeated

        end_on_signals(stop)
        jobs = pipeline_steps.Jobs(spark, tables, clock, metrics)
        if (before := jobs.last_success()) is not None:
            metrics.set(LAST_SUCCESS, min(before, clock.wall_ms() / 1000))
        logged = None if offsets is None else replace(offsets, tell=partial(pipeline_steps.log_poll, metrics))
        poll = None if logged is None else logged.poll(spark, tables, stop)
        steps = _steps(asked, jobs, open_source, offsets, poll)
        turns = TurnLoop(
            steps, asked["every"], clock, metrics, partial(_explained, spark, asked), stop, jobs.remember_success
        )
        health.watched = (turns, partial(pipeline_steps.is_alive, spark))
        with ExitStack() as beside:
            beside.enter_context(pipeline_steps.ended_in_time(spark, stop))
            if poll is not None and asked["follow"]:
                beside.enter_context(repeated(partial(pipeline_steps.poll_if_due, poll, turns), stop))
            try:
                with repeated(partial(pipeline_steps.require_alive, spark), stop, _LOOK_S):
                    failed = turns.run() if asked["follow"] else turns.turn()
            except CannotContinue as error:
                raise NotDone(str(error)) from error
    if failed:
        raise NotDone("\n".join(each.reason for each in failed))


def _offsets_of(asked: Mapping[str, Any]) -> OffsetsFromKafka | None:
    if asked["cluster"] is None:
        if asked["json_topic"] is not None:
            raise Refused("--json-topic needs --offsets")
        return None
    reached = shared.kafka_of(asked, "karrot-offsets")
    return OffsetsFromKafka(asked["cluster"], reached, asked["ends_every"], asked["json_topic"])


def _steps(
    asked: Mapping[str, Any],
    jobs: "Jobs",
    open_source: Callable[[], "EventSource"],
    offsets: OffsetsFromKafka | None,
    poll: "EndsPoll | None",
) -> list["Step"]:
    from karrot.pipeline.run.step_loop import Step

    steps = [Step("ingest", partial(jobs.ingest, open_source, asked["checkpoint"] or ""))]
    if offsets is not None and poll is not None:
        # A thread polls the log ends between the turns. With --once, this thread does not run.
        after = (lambda: None) if asked["follow"] else poll.look
        land = partial(offsets.job, jobs.spark, poll=poll)
        steps.append(Step("offsets", partial(jobs.offsets, offsets.cluster, land, after)))
    steps.append(Step("derive", partial(jobs.derive, rules_of(asked))))
    if (at := asked["compact_at"]) is not None:
        steps.append(Step("compact", partial(jobs.compact, asked["keep"]), partial(jobs.compact_is_due, at)))
    return steps


def _explained(spark: "SparkSession", asked: Mapping[str, Any], step: str, error: Exception) -> "StepFailure":
    """Return the failure of a step, with the one-line message that the step's own command prints."""
    import structlog

    from karrot.kafka.client_properties import PropertiesError
    from karrot.pipeline.run.pipeline_steps import is_alive
    from karrot.pipeline.run.step_loop import StepFailure
    from karrot.pipeline.store.table_files import OtherFormat
    from karrot.pipeline.store.write_lease import LeaseHeld
    from karrot.pipeline.stream.record_sources import ConnectorMissing, NoRecords
    from karrot.watch.cluster_interface import ClusterError

    ending = in_a_sentence(error, asked)
    reason = f"{type(error).__name__}: {error}" if ending is None else ending.message
    if ending is None:
        structlog.get_logger(__name__).error("a step failed unexpectedly", code="step_unexpected", exc_info=error)
    if isinstance(error, LeaseHeld):
        return StepFailure("lease_held", reason)
    if not is_alive(spark):
        return StepFailure("failed", f"Spark has ended: {reason}", is_final=True)
    if _NO_SPACE.search(str(error)):
        return StepFailure("disk_full", reason)
    if isinstance(error, ClusterError | NoRecords) or (step == "ingest" and isinstance(error, FileNotFoundError)):
        return StepFailure("source_away", reason)
    is_final = isinstance(error, ConnectorMissing | PropertiesError | OtherFormat) or _NO_HEAP in str(error)
    return StepFailure("failed", reason, is_final)
