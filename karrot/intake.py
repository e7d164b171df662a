"""Stores every event in the log: the bodies that Burrow posts, and the verdicts of resync and watch."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from karrot import telemetry
from karrot.burrow.payload import MalformedPayload, parse_webhook, require_within, to_wire
from karrot.clock import Clock
from karrot.event import GroupKey, Kind, LagEvent, Source
from karrot.eventlog.base import Appended, Reject, UnstorableError
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.writer import Job

KEPT_BYTES = 4096
"""The most bytes of a refused body that Karrot keeps."""

_BOUNDS = tuple(map(float, telemetry.EVENT_HANDLING_SECONDS.edges))
_UNSTORABLE = "The database of the event log refuses a value of this event."


class Intake:
    """Parses events, appends them to the event log and counts them. It also keeps refused bodies, as rejects."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        *,
        pull_reporters: Sequence[str] = (),
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._log = log
        self._clock = clock
        self._pull_reporters = pull_reporters
        self._stopwatch = stopwatch

    def begin(self, body: bytes, source: Source = Source.WEBHOOK) -> "PendingAppend":
        """Start to store a posted body. Does not wait. Raises `MalformedPayload`, and what `EventLog.begin` raises."""
        started = self._stopwatch()
        with self._keeping(body, source):
            event = parse_webhook(body, observed_at_ms=self._clock.wall_ms(), source=source)
        job = self._log.begin(event, body)
        return PendingAppend(job, partial(self._count_posted, event, started), self._keeping(body, source))

    def accept(self, event: LagEvent, *, age_ms: int = 0) -> Appended | None:
        """Store an event observed ``age_ms`` ago; ``None`` if it breaks a bound. Stored groups can be deleted."""
        body = to_wire(event)
        with suppress(MalformedPayload), self._keeping(body, event.source):
            if event.kind is not Kind.DELETED or self._log.group(GroupKey(event.cluster, event.consumer)) is None:
                require_within(event)
            return self._count(self._log.append(event, body, age_ms=age_ms))
        return None

    def refuse(self, code: str, detail: str, body: bytes = b"", source: Source = Source.WEBHOOK) -> None:
        """Count a refused request. Keep the first bytes of its body, if it was read. Never blocks and never raises."""
        self._log.count(telemetry.EVENTS_REJECTED, code=code)
        if not body and code != "empty_body":
            return  # refused by its headers: an empty reject would only displace a reject with a body
        self._log.reject(
            Reject(
                received_at_ms=self._clock.wall_ms(),
                code=code,
                detail=detail,
                source=source,
                body=body[:KEPT_BYTES],
            )
        )

    @contextmanager
    def _keeping(self, body: bytes, source: Source) -> Iterator[None]:
        """Count and keep a refused body. The database's error text is only in the service's own log."""
        try:
            yield
        except (MalformedPayload, UnstorableError) as error:
            refused = error if isinstance(error, MalformedPayload) else MalformedPayload("invalid_field", _UNSTORABLE)
            self.refuse(refused.code, str(refused), body, source)
            raise refused from error.__cause__

    def _count_posted(self, event: LagEvent, started: float, appended: Appended) -> Appended:
        self._count(appended)
        if event.from_burrow:
            self._log.count(telemetry.WEBHOOK_EVENTS, kind=event.kind.value)
        observe(self._log.count, self._stopwatch() - started)
        return appended

    def _count(self, appended: Appended) -> Appended:
        for reporter in self._pull_reporters:  # the reporters' next answer includes every event
            self._log.count(telemetry.REPORTER_EVENTS, reporter=reporter)
        if not appended.tracked:
            self._log.count(telemetry.SERIES_DROPPED)
        return appended


class PendingAppend(NamedTuple):
    """The append of a posted event, which may not be stored yet."""

    job: Job[Appended]
    counted: Callable[[Appended], Appended]
    keeping: AbstractContextManager[None]

    def wait(self) -> Appended:
        """Wait for the result and count the event. Raises what `EventLog.append` and `Intake.begin` raise."""
        with self.keeping:
            return self.counted(self.job.wait())

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` once when the outcome is known. The call runs in any thread, or immediately."""
        self.job.when_done(call)

    def withdraw(self) -> bool:
        """Cancel the append. Return true if the event is not stored and never will be."""
        return self.job.withdraw()


def observe(count: Callable[..., None], seconds: float) -> None:
    """Count the time of one event through ``count(metric, by, **labels)``."""
    metric = telemetry.EVENT_HANDLING_SECONDS
    count(f"{metric.name}_bucket", 1, le=metric.edges[bisect_left(_BOUNDS, seconds)])
    count(f"{metric.name}_sum", seconds)
