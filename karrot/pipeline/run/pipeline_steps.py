"""Makes the steps of ``karrot pipeline run``, polls log ends meanwhile, and stops the process if Spark hangs."""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from threading import Event
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.clock import Clock
from karrot.history import History
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.ingest.event_sources import EventSource
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.offsets.job import LandOffsets
from karrot.pipeline.offsets.log_ends import LogEndPolls, append_ends
from karrot.pipeline.run.step_loop import NEWEST_EVENT, RunMetrics, StepResult, TurnLoop
from karrot.pipeline.store.compact_and_expire import compact
from karrot.pipeline.store.hadoop_filesystem import place_for, read_text, write_text
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.store.write_lease import DERIVED, EVENTS, offsets_lease, release_all, writing
from karrot.pipeline.stream.streaming_queries import run_queries
from karrot.report.html_page import write_report
from karrot.settings.types import tables_place
from karrot.text import counted_plain

_log = structlog.get_logger(__name__)

_COMMAND: Final = "karrot pipeline run"
_COMPACTED: Final = "_compacted"
"""The file in the tables with the last day on which they were compacted."""
_LAST_SUCCESS: Final = "_last_success"
"""The file in the tables with the time at which the last turn without a failure ended, in epoch seconds."""


@dataclass(frozen=True, slots=True)
class Jobs:
    spark: SparkSession
    tables: Tables
    clock: Clock
    metrics: RunMetrics
    wait: timedelta | None = None

    def events(self, open_source: Callable[[], EventSource], checkpoint: str, stop: Event) -> StepResult:
        with self._leased(EVENTS, stop) as tables:
            summary = Ingest(self.spark, open_source(), tables, place_for(self.spark, checkpoint)).run(stop)
        quarantined = summary.quarantined + summary.short_segments
        rows = {"events": summary.events, "partitions": summary.partitions, "quarantine": quarantined}
        return StepResult(str(summary), asdict(summary), rows)

    def offsets(self, cluster: str, job: Callable[[Tables], LandOffsets], stop: Event) -> StepResult:
        with self._leased(offsets_lease(cluster), stop) as tables:
            landing = job(tables)
            run_queries([landing.start()], stop=stop, follow=False)
        total = landing.total
        rows = {"commits": total.commits + total.tombstones, "members": total.members}
        return StepResult(str(total), total.as_dict(), {**rows, "quarantine": total.quarantined})

    def derive(self, rules: DeriveRules, only: Collection[date], stop: Event) -> StepResult:
        with self._leased(DERIVED, stop) as tables:
            days = derive(self.spark, tables, rules, only=only, on_progress=_log.info)
        newest_day = self.tables.days(self.spark, "events")[-1:]
        newest = self.tables.read(self.spark, "events", days=newest_day).agg(F.max(F.unix_millis("received_at")))
        if (newest_ms := newest.collect()[0][0]) is not None:
            self.metrics.set(NEWEST_EVENT, newest_ms / 1000)
        text = f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed"
        return StepResult(text, {"days": [*map(str, days)]})

    def compact(self, keep: timedelta, at: time | None, stop: Event) -> StepResult | None:
        """Compact the tables, unless ``at`` is given and they were compacted since the last ``at`` (UTC)."""
        if at is not None and not self.compact_is_due(at):
            return None
        now = self._now()
        with self._leased(DERIVED, stop) as tables:
            done = compact(self.spark, tables, keep=keep, today=now.date())
        write_text(self.spark, self.tables.path(_COMPACTED), now.date().isoformat())
        return StepResult(str(done), {**done._asdict(), "dropped": [*map(str, done.dropped)]})

    def report(self, output: Path, _stop: Event) -> StepResult:
        with History(tables_place.read(self.tables.directory), spills=True) as history:
            headline = write_report(history, output)
        return StepResult(f"{output}: {headline}", {"output": str(output), "headline": headline})

    def compact_is_due(self, at: time) -> bool:
        """Whether the tables were not compacted since the last ``at`` (UTC).

        The day is in a file, so a restart does not compact again. The first run on tables without this file waits for
        the next ``at``.
        """
        now = self._now()
        due = now.date() if now.time() >= at else now.date() - timedelta(days=1)
        noted = read_text(self.spark, self.tables.path(_COMPACTED))
        if noted is None:
            write_text(self.spark, self.tables.path(_COMPACTED), due.isoformat())
            return False
        try:
            return date.fromisoformat(noted.strip()) < due
        except ValueError:  # a damaged file counts as an old day
            return True

    def last_success(self) -> float | None:
        """The time at which the last turn on these tables ended without a failure; ``None`` if it is not known.

        An unreachable store does not end the process, because the steps of the turns retry.
        """
        try:
            noted = read_text(self.spark, self.tables.path(_LAST_SUCCESS))
            return None if noted is None else float(noted)
        except (OSError, Py4JError, ValueError) as error:
            _log.warning(
                "the time of the last turn is not known", code="last_turn_unknown", reason=str(error).partition("\n")[0]
            )
            return None

    def remember_success(self, at_s: float) -> None:
        """Store the time at which a turn ended without a failure, for the processes after this one."""
        write_text(self.spark, self.tables.path(_LAST_SUCCESS), f"{at_s:.3f}")

    def _leased(self, name: str, stop: Event) -> AbstractContextManager[Tables]:
        """Hold a lease for one step, so that other commands can write between two steps."""
        asked = (self.spark, self.tables, name, _COMMAND)
        return writing(*asked, wait=self.wait, clock=self.clock, stop=stop)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)


def is_alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 (pyspark has no other way to ask)
    except (OSError, Py4JError):
        return False


_GRACE_S: Final = 20
"""How long a step may take to end after a signal. Kubernetes kills a pod after 30 s."""

_HALT_S: Final = 4
_RELEASE_S: Final = 2


def _beside(name: str, work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def ended_in_time(spark: SparkSession, stop: Event) -> Iterator[None]:
    """After a signal, give the open step 20 s. Then cancel its Spark jobs, and end the process if this does not help.

    The next start repeats unfinished work.
    """
    over = Event()

    def watch() -> None:
        stop.wait()
        if over.wait(_GRACE_S):
            return
        spark.sparkContext.setLogLevel("OFF")  # otherwise Spark logs a stack trace for each job that ends here
        spark.sparkContext.cancelAllJobs()
        if not over.wait(_HALT_S):
            _log.warning("turn abandoned", code="turn_abandoned")
            _beside("release", release_all).join(_RELEASE_S)  # an unreachable store would block the exit
            os._exit(0)

    _beside("end in time", watch)
    try:
        yield
    finally:
        over.set()
        stop.set()


_POLLS_OF_A_FILE: Final = 20


def poll_if_due(jobs: Jobs, cluster: str, polls: LogEndPolls, turns: TurnLoop) -> None:
    """Poll log ends between the turns, and write them if many wait. Log and count the errors."""
    try:
        polls.if_due()
        if len(polls.waiting) >= _POLLS_OF_A_FILE and (look := polls.taken(())) is not None:
            append_ends(jobs.spark, jobs.tables, cluster, look)
    except Exception as error:  # noqa: BLE001 (the outermost loop: every error is explained, logged and counted)
        failure = turns.explain("ends", error)
        turns.metrics.failed("ends", failure.code)
        _log.error("log ends not written", code=failure.code, reason=failure.reason)


def log_poll(metrics: RunMetrics, summary: object) -> None:
    """Log and count a poll of log ends that Kafka did not answer."""
    if problem := getattr(summary, "problem", ""):
        metrics.failed("ends", "source_away")
        _log.warning("log ends not read", code="log_ends_not_read", reason=problem)
