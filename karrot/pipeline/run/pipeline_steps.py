"""Makes the steps of a turn from the pipeline's jobs: ingest, offsets, derive and compact."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from threading import Event
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.clock import Clock
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.ingest.event_sources import EventSource
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.offsets.job import LandOffsets
from karrot.pipeline.run.run_metrics import RunMetrics
from karrot.pipeline.run.turns import StepResult
from karrot.pipeline.store.compact import compact
from karrot.pipeline.store.filesystem import place_for, read_text, write_text
from karrot.pipeline.store.lease import DERIVED, EVENTS, offsets_lease, writing
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.query_runner import run_queries
from karrot.text import counted_plain

_log = structlog.get_logger(__name__)

_COMMAND: Final = "karrot pipeline run"
_COMPACTED: Final = "_compacted"
"""The file in the tables with the last day on which they were compacted."""
_LAST_SUCCESS: Final = "_last_success"
"""The file in the tables with the time at which the last turn without a failure ended, in epoch seconds."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs on one directory of tables, each as the work of a step."""

    spark: SparkSession
    tables: Tables
    clock: Clock
    metrics: RunMetrics

    def ingest(self, open_source: Callable[[], EventSource], checkpoint: str) -> Callable[[Event], StepResult]:
        """Write the events that are new in the source."""

        def work(stop: Event) -> StepResult:
            with self._leased(EVENTS, stop) as tables:
                summary = Ingest(self.spark, open_source(), tables, place_for(self.spark, checkpoint)).run(None, stop)
            quarantined = summary.quarantined + summary.short_segments
            rows = {"events": summary.events, "partitions": summary.partitions, "quarantine": quarantined}
            return StepResult(rows, str(summary))

        return work

    def offsets(
        self, cluster: str, job: Callable[[Tables], LandOffsets], after: Callable[[], object]
    ) -> Callable[[Event], StepResult]:
        """Write the records that are new in ``__consumer_offsets``, and then call ``after``."""

        def work(stop: Event) -> StepResult:
            with self._leased(offsets_lease(cluster), stop) as tables:
                landing = job(tables)
                run_queries([landing.start()], stop=stop, follow=False)
                after()
            total = landing.total
            rows = {"commits": total.commits + total.tombstones, "members": total.members}
            return StepResult({**rows, "quarantine": total.quarantined}, str(total))

        return work

    def derive(self, rules: DeriveRules) -> Callable[[Event], StepResult]:
        """Derive the days that changed, and look up the newest event."""

        def work(stop: Event) -> StepResult:
            with self._leased(DERIVED, stop) as tables:
                days = derive(self.spark, tables, rules)
            if (newest := self._newest_event()) is not None:
                self.metrics.newest_event(newest)
            return StepResult({}, f"derived {counted_plain(len(days), 'day')}")

        return work

    def compact(self, keep: timedelta) -> Callable[[Event], StepResult]:
        """Merge small files and drop old days, and note the day."""

        def work(stop: Event) -> StepResult:
            now = self._now()
            with self._leased(DERIVED, stop) as tables:
                done = compact(self.spark, tables, keep=keep, today=now.date())
            write_text(self.spark, self.tables.path(_COMPACTED), now.date().isoformat())
            merged = f"merged {counted_plain(done.files_before, 'file')} into {done.files_after}"
            return StepResult({}, f"{merged}, dropped {counted_plain(len(done.dropped), 'day')}")

        return work

    def compact_is_due(self, at: time) -> Callable[[], bool]:
        """Whether the tables were not compacted since the last ``at`` (UTC).

        The day is in a file, so a restart does not compact again. The first run on tables without this file waits for
        the next ``at``.
        """

        def is_due() -> bool:
            now = self._now()
            due = now.date() if now.time() >= at else now.date() - timedelta(days=1)
            noted = read_text(self.spark, self.tables.path(_COMPACTED))
            if noted is None:
                write_text(self.spark, self.tables.path(_COMPACTED), due.isoformat())
                return False
            return _day(noted) < due

        return is_due

    def last_success(self) -> float | None:
        """The time at which the last turn on these tables ended without a failure; ``None`` if it is not known.

        A store that is away does not end the process: the steps of the turns try again.
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
        return writing(self.spark, self.tables, name, _COMMAND, clock=self.clock, stop=stop)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)

    def _newest_event(self) -> float | None:
        """The time of the newest event in epoch seconds; ``None`` if there is no event."""
        days = self.tables.days(self.spark, "events")
        newest = F.max(F.unix_millis("received_at"))
        ((found,),) = self.tables.read(self.spark, "events", days=days[-1:]).agg(newest).collect()
        return None if found is None else found / 1000


def is_alive(spark: SparkSession) -> bool:
    """Whether Spark and its JVM can run another job."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 (pyspark has no other way to ask)
    except (OSError, Py4JError):
        return False


def _day(text: str) -> date:
    """The day in the file. A damaged file counts as a day long ago."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return date.min
