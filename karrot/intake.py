"""The only way into the log: bytes from the web, events from resync and watch."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from karrot import telemetry
from karrot.burrow.payload import MalformedPayload, parse_webhook, to_wire
from karrot.clock import Clock
from karrot.event import Kind, LagEvent, Source
from karrot.eventlog.base import Appended, EventLog, Pending, Reject

__all__ = ["KEPT_BYTES", "Intake", "Receipt"]

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

    def receive(self, body: bytes) -> Appended:
        """Take one webhook body; return when it is durable.

        Raises `MalformedPayload` for a body that is refused (already counted and kept), `LogUnavailableError` and
        `OverloadedError` if it could not be stored.
        """
        return self.begin(body).settle()

    def begin(self, body: bytes) -> "Receipt":
        """Take one webhook body without waiting for the disk: nothing is acknowledged before `Receipt.settle`."""
        started = self._stopwatch()
        try:
            event = parse_webhook(body, observed_at_ms=self._clock.wall_ms())
        except MalformedPayload as error:
            self.refuse(error.code, str(error), body)
            raise
        return Receipt(self, self._log.begin(event, body), event.kind, started)

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

    def settle(self, pending: Pending, kind: Kind, started: float) -> Appended:
        """Wait for a webhook's event to be durable and count it."""
        appended = self._count(pending.wait())
        self._log.count(telemetry.WEBHOOK_EVENTS.name, kind=kind.value)
        telemetry.EVENT_HANDLING_SECONDS.observe(self._log.count, self._stopwatch() - started)
        return appended

    def _count(self, appended: Appended) -> Appended:
        for reporter in self._pull_reporters:  # what is in the log is in their next answer
            self._log.count(telemetry.REPORTER_EVENTS.name, reporter=reporter)
        if not appended.tracked:
            self._log.count(telemetry.SERIES_DROPPED.name)
        return appended


class Receipt(NamedTuple):
    """An event between its arrival and the disk."""

    intake: Intake
    pending: Pending
    kind: Kind
    started: float

    def settle(self) -> Appended:
        """The outcome. Raises `LogUnavailableError` or `OverloadedError` if the event is not in the log."""
        return self.intake.settle(self.pending, self.kind, self.started)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have ``call`` run once when `settle` would not wait: in some thread, or at once."""
        self.pending.when_done(call)

    def withdraw(self) -> bool:
        """Take the event back: true if it has not been stored and will not be."""
        return self.pending.withdraw()
