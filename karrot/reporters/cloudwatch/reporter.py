"""The reporter: events in, the newest value of every metric out, at a fixed rate."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import structlog

from karrot import telemetry
from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import Context, Sending, Trouble
from karrot.reporters.cloudwatch.datum import Datum, why_refused
from karrot.reporters.cloudwatch.event_to_data import CLUSTER, HEARTBEAT, Held, Mapped, data_of
from karrot.reporters.cloudwatch.faults import Fault, FaultKind
from karrot.reporters.cloudwatch.group_cap import LegacyNames, Membership
from karrot.reporters.cloudwatch.newest_values import NewestValues
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.schedule import Schedule
from karrot.reporters.cloudwatch.sender import BatchRefusal, Sender, SendOutcome
from karrot.reporters.cloudwatch.status import Ledger
from karrot.reporters.send_report import NOTE

__all__ = ["CloudWatchReporter"]

_INSIDE = "inside"
"""The name of the note that says which groups have a place under the cap."""

_MOST_CLUSTERS = 100

_log = structlog.get_logger(__name__)


class CloudWatchReporter:
    """A paced reporter: see `karrot.reporters.base.PacedReporter`."""

    def __init__(self, options: Options, sender: Sender, context: Context, random: Random) -> None:
        self._options = options
        self._sender = sender
        self._clock = context.clock
        self._log_time_ms = context.log_time_ms
        self._count = _Counts(context.name, context.count)
        self._recall, self._remember = context.recall, context.remember
        self._schedule = Schedule(options.interval_s, lambda: context.clock.boot_ms() / 1000, random)
        self._buffer = NewestValues()
        self._legacy_names = LegacyNames()
        self._clusters: set[str] = set()
        self._ledger = Ledger(options)
        self._membership: Membership | None = None

    def take(self, events: Sequence[StoredEvent]) -> None:
        """Owe what the events say, as far as it is wanted, known and acceptable."""
        now_ms = self._clock.wall_ms()
        for stored in events:
            try:
                self._take(stored, now_ms)
            except Exception:  # noqa: BLE001 - one event that nobody foresaw must not keep all that follow from CloudWatch
                _log.exception("an event was not understood", event_id=stored.event_id)
                self._count.dropped({"unexpected": 1})

    def _take(self, stored: StoredEvent, now_ms: int) -> None:
        mapped = data_of(stored, self._options)
        self._count.dropped(mapped.held)
        if mapped.gone:
            self._inside().leaves(mapped.key)
        data = [] if mapped.heartbeat is None or not self._beats(mapped) else [mapped.heartbeat]
        if mapped.group and self._admitted(stored, mapped):
            data += mapped.group
        for datum in data:
            self._owe(datum, stored, now_ms)

    def due_in(self) -> float:
        """Seconds until the next send."""
        return self._schedule.due_in()

    def send(self) -> Sending:
        """Send the newest of everything; what is older than ``ttl_s`` helps no alarm any more and is dropped."""
        self._count.dropped({"expired": self._buffer.expire(self._log_time_ms() - 1000 * self._options.ttl_s)})
        outcome = self._sent()
        self._buffer.settle(outcome.delivered)
        self._buffer.settle(refusal.datum for refusal in outcome.refused)
        for refusal in outcome.refused:
            self._refuse(refusal)
        self._count.outcome("sent", len(outcome.delivered))
        self._note(outcome)
        if outcome.fault is None:
            self._schedule.went_well()
            return Sending(outcome.calls)
        self._schedule.failed(outcome.fault.kind)
        return Sending(outcome.calls, Trouble(outcome.fault.kind.value, outcome.fault.text))

    def owed(self, log_id: str) -> int | None:
        """The oldest event that owes a send."""
        return self._buffer.oldest(log_id)

    def close(self) -> None:
        """Close the connections to AWS."""
        self._sender.close()

    def _sent(self) -> SendOutcome:
        data = self._buffer.data()
        try:
            return self._sender.send(data)
        except Exception as error:  # noqa: BLE001 - the outermost loop of the reporter: a surprise must not end it
            _log.exception("sending to CloudWatch failed in a way nobody expected")
            fault = Fault(FaultKind.UNEXPECTED, f"{type(error).__name__}: {error}")
            return SendOutcome(delivered=(), refused=(), kept=tuple(data), calls=0, fault=fault)

    def _beats(self, mapped: Mapped) -> bool:
        """Whether a cluster has a heartbeat: not one of more than anybody runs, as names that are forged would be."""
        if mapped.key.cluster not in self._clusters:
            if len(self._clusters) >= _MOST_CLUSTERS:
                self._count.dropped({"over_cap": 1})
                return False
            self._clusters.add(mapped.key.cluster)
        return True

    def _admitted(self, stored: StoredEvent, mapped: Mapped) -> bool:
        if not self._inside().admits(mapped.key, stored.log_time_ms):
            self._count.dropped({"over_cap": 1})
            return False
        self._count.outcome("name_cut", mapped.cut)
        for datum in mapped.group:
            if not datum.dimensions and self._legacy_names.taken_over(datum.metric, mapped.key.cluster):
                self._count.dropped({"name_collision": 1})
        return True

    def _owe(self, datum: Datum, stored: StoredEvent, now_ms: int) -> None:
        reason = why_refused(datum, now_ms)
        if reason is None:
            self._buffer.put(datum, stored)
        else:
            self._refuse(BatchRefusal(datum, reason.value, f"event {stored.event_id}: {reason.sentence}"))

    def _refuse(self, refusal: BatchRefusal) -> None:
        self._count.dropped({refusal.reason: 1})
        self._ledger.refused(refusal, self._clock.wall_ms())

    def _inside(self) -> Membership:
        """Who is inside the cap: as the log says, which whoever led before kept up to date."""
        if self._membership is None:
            try:
                self._membership = Membership.restore(self._recall(_INSIDE), self._options)
            except ValueError as error:
                _log.error("the groups inside the cap are chosen anew", reason=str(error))
                self._membership = Membership(self._options)
        return self._membership

    def _note(self, outcome: SendOutcome) -> None:
        inside = self._inside()
        # A log that replaced another one has no notes yet.
        if inside.changed or (inside.inside and self._recall(_INSIDE) is None):
            self._remember(_INSIDE, inside.dump())
            inside.kept()
        beats = [datum for datum in outcome.delivered if datum.metric == HEARTBEAT and datum.dimensions]
        clusters = {dict(datum.dimensions)[CLUSTER] for datum in beats}
        report = self._ledger.report(outcome, inside, clusters, self._clock.wall_ms())
        self._remember(NOTE, report)


class _Counts:
    """What the reporter counts, under its name."""

    def __init__(self, reporter: str, count: Callable[..., None]) -> None:
        self._reporter = reporter
        self._count = count

    def dropped(self, reasons: Mapping[str, int] | Mapping[Held, int]) -> None:
        """Values that are not sent, by reason."""
        for reason, many in reasons.items():
            if many:
                self._count(telemetry.REPORTER_DROPPED.name, many, reporter=self._reporter, reason=reason)

    def outcome(self, outcome: str, many: int) -> None:
        """Data that were sent, names that were cut."""
        if many:
            self._count(telemetry.REPORTER_CLOUDWATCH_DATA.name, many, reporter=self._reporter, outcome=outcome)
