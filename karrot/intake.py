"""Stores events in the log: bodies that Burrow posts, and what resync and watch observe. There is no other way in."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from karrot import telemetry
from karrot.burrow.payload import parse_webhook, to_wire
from karrot.burrow.wire import MalformedPayload
from karrot.clock import Clock
from karrot.event import Kind, LagEvent, Source
from karrot.eventlog.base import Appended, EventLog, PendingAppend, Reject

KEPT_BYTES = 4096
"""How much of a refused body is kept."""


class Intake:
    """Parses, appends and counts; what it refuses is kept in the log's bounded table of rejects."""

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

    def begin(self, body: bytes) -> PendingAppend:
        """Take one webhook body without waiting for the disk: nothing is acknowledged before `PendingAppend.wait`.

        Raises `MalformedPayload` for a body that is refused (already counted and kept), and what `Events.begin` raises.
        """
        started = self._stopwatch()
        try:
            event = parse_webhook(body, observed_at_ms=self._clock.wall_ms())
        except MalformedPayload as error:
            self.refuse(error.code, str(error), body)
            raise
        return CountedAppend(self._log.begin(event, body), partial(self._count_webhook, event.kind, started))

    def accept(self, event: LagEvent, *, age_ms: int = 0) -> Appended:
        """Take an event that resync or watch observed ``age_ms`` ago, by a clock that cannot be set."""
        return self._count(self._log.append(event, to_wire(event), age_ms=age_ms))

    def refuse(self, code: str, detail: str, body: bytes = b"") -> None:
        """Count a refusal and keep the head of what was refused, if any. Never blocks, never raises."""
        self._log.count(telemetry.EVENTS_REJECTED.name, code=code)
        if not body:  # refused by its headers: there is nothing to look at, and it must not push out what there is
            return
        self._log.reject(
            Reject(
                received_at_ms=self._clock.wall_ms(),
                code=code,
                detail=detail,
                source=Source.WEBHOOK,
                body=body[:KEPT_BYTES],
            )
        )

    def _count_webhook(self, kind: Kind, started: float, appended: Appended) -> Appended:
        self._count(appended)
        self._log.count(telemetry.WEBHOOK_EVENTS.name, kind=kind.value)
        telemetry.EVENT_HANDLING_SECONDS.observe(self._log.count, self._stopwatch() - started)
        return appended

    def _count(self, appended: Appended) -> Appended:
        for reporter in self._pull_reporters:  # what is in the log is in their next answer
            self._log.count(telemetry.REPORTER_EVENTS.name, reporter=reporter)
        if not appended.tracked:
            self._log.count(telemetry.SERIES_DROPPED.name)
        return appended


class CountedAppend(NamedTuple):
    """The `PendingAppend` of a webhook's event, which `wait` counts once it is stored."""

    pending: PendingAppend
    counted: Callable[[Appended], Appended]

    def wait(self) -> Appended:
        """The outcome, now counted. Raises what `PendingAppend.wait` raises."""
        return self.counted(self.pending.wait())

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` once when `wait` would not block: in any thread, or at once."""
        self.pending.when_done(call)

    def withdraw(self) -> bool:
        """Cancel the append. True if the event was not stored and will not be."""
        return self.pending.withdraw()
