"""Sends the newest value of every metric to CloudWatch at a fixed rate, and saves a report on each send."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice, takewhile
from random import Random
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from karrot import telemetry
from karrot.aws.errors import Fault, FaultKind
from karrot.event import GroupKey, Source
from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import REPORT_NOTE, Backoff, Context, Fact, RefusedDatum, Report, Sending, Sent, Trouble
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, MetricKey, why_refused
from karrot.reporters.cloudwatch.event_to_data import Held, Mapped, data_of
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.sender import BatchRefusal, Sender, SendOutcome
from karrot.text import counted

K = TypeVar("K")

OUTSIDE_BOUND = 100_000
"""Up to this number, groups without metrics are counted exactly. A larger number counts as this number."""

NAMES_BOUND = 100_000
"""The most names that are remembered. If there are more, the names with the oldest events are forgotten."""

_QUARTER_MS = 6 * 3_600_000  # the unit of silence: a quarter of a day, so a group's note changes 4 times a day at most
_SILENT_QUARTERS = 4
_LONGEST = 1024


class Membership:
    """The groups whose metrics are sent ("inside" the limit), at most ``options.max_groups``.

    A group stays inside until it is deleted, or until it was silent for a day (24 to 30 hours of log time) and another
    group needs its place. `dump` and `restore` keep the groups over a restart. Only one thread may use this object.
    """

    def __init__(self, options: Options) -> None:
        self._max_groups = options.max_groups
        self._inside: OrderedDict[GroupKey, int] = OrderedDict()  # the quarter of each group's last event, oldest first
        self._outside: OrderedDict[int, int] = OrderedDict()  # also quarters, by the key's hash: names can be long
        self._quarter = 0
        self._changed = False

    @classmethod
    def restore(cls, dump: bytes | None, options: Options) -> "Membership":
        """The wanted groups of a dump; if not all fit, the ones with the newest events. Raises `ValueError`."""
        membership = cls(options)
        kept = _read_dump(dump) if dump else {}
        heard = [
            (quarter, GroupKey(cluster, consumer))
            for cluster, groups in kept.items()
            for consumer, quarter in groups.items()
            if options.wants(consumer)
        ]
        heard.sort()
        for quarter, key in heard[-options.max_groups :]:
            membership._inside[key] = quarter
        membership._quarter = heard[-1][0] if heard else 0
        membership._changed = len(membership._inside) != sum(map(len, kept.values()))
        return membership

    @property
    def inside(self) -> int:
        return len(self._inside)

    @property
    def outside(self) -> int:
        """The number of groups that were left out within the last day. It is exact up to `OUTSIDE_BOUND`."""
        for silent in list(_silent(self._outside, self._quarter)):
            del self._outside[silent]
        return len(self._outside)

    def admits(self, key: GroupKey, log_time_ms: int) -> bool:
        """Take a group with a new event inside, if there is a place. Return whether the group is inside."""
        key = _shortened(key)
        self._quarter = max(self._quarter, log_time_ms // _QUARTER_MS)
        if key not in self._inside and not self._has_place():
            self._note_outside(key)
            return False
        if self._inside.get(key) != self._quarter:
            self._inside[key] = self._quarter
            self._inside.move_to_end(key)
            self._outside.pop(hash(key), None)
            self._changed = True
        return True

    def leaves(self, key: GroupKey) -> None:
        key = _shortened(key)
        self._outside.pop(hash(key), None)
        if self._inside.pop(key, None) is not None:
            self._changed = True

    @property
    def changed(self) -> bool:
        return self._changed

    def kept(self) -> None:
        self._changed = False

    def dump(self) -> bytes:
        """The groups inside, as JSON for `restore`. The same groups always give the same JSON."""
        kept: dict[str, dict[str, int]] = {}
        for (cluster, consumer), quarter in self._inside.items():
            kept.setdefault(cluster, {})[consumer] = quarter
        return msgspec.json.encode(kept, order="sorted")

    def _has_place(self) -> bool:
        if len(self._inside) >= self._max_groups:
            silent = next(_silent(self._inside, self._quarter), None)
            if silent is None:
                return False
            del self._inside[silent]
        return True

    def _note_outside(self, key: GroupKey) -> None:
        self._outside[hash(key)] = self._quarter
        self._outside.move_to_end(hash(key))
        if len(self._outside) > OUTSIDE_BOUND:
            self._outside.popitem(last=False)


class LegacyNames:
    """The cluster for which each legacy metric was last sent: one name in two clusters is one metric."""

    def __init__(self, bound: int = NAMES_BOUND) -> None:
        self._bound = bound
        self._clusters: OrderedDict[str, str] = OrderedDict()

    def taken_over(self, name: str, cluster: str) -> bool:
        """Record that a metric is sent for a cluster. Return whether it replaces the value of another cluster."""
        before = self._clusters.get(name)
        self._clusters[name] = cluster
        self._clusters.move_to_end(name)
        if len(self._clusters) > self._bound:
            self._clusters.popitem(last=False)
        return before is not None and before != cluster


def _shortened(key: GroupKey) -> GroupKey:
    """The key with long names shortened, for the note. Two names stay different by their SHA-256."""
    return GroupKey(
        *(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}~{sha256(name.encode()).hexdigest()}" for name in key)
    )


def _silent(heard: OrderedDict[K, int], quarter: int) -> Iterator[K]:
    """The groups that were silent for a day, the longest silent group first."""
    return takewhile(lambda key: quarter - heard[key] > _SILENT_QUARTERS, heard)


def _read_dump(dump: bytes) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(dump, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the saved list of groups inside the cap cannot be read: {error}") from error


_SHOWN = 50
_INSIDE = "inside"
"""The name of the note with the groups inside the limit."""

_MOST_CLUSTERS = 100

_FIRST_S = 1.0
"""The first send comes early, because values may be unsent after a crash."""

_SLOWLY_S = 30.0
_THROTTLED = Backoff(0.5, 60.0)
_SLOW = frozenset({FaultKind.CREDENTIALS, FaultKind.PERMISSION, FaultKind.REGION})

_log = structlog.get_logger(__name__)


class CloudWatchReporter:
    """A paced reporter: see `karrot.reporters.base.PacedReporter`."""

    def __init__(self, options: Options, sender: Sender, context: Context, random: Random) -> None:
        self._options = options
        self._sender = sender
        self._clock = context.clock
        self._log_time_ms = context.log_time_ms
        self._count = _Counts(context.name, context.count)
        self._recall, self._remember, self._cut_off = context.recall, context.remember, context.cut_off
        self._group = context.group
        self._schedule = Schedule(options.interval_s, lambda: context.clock.boot_ms() / 1000, random)
        self._buffer = NewestValues()
        self._legacy_names = LegacyNames()
        self._clusters: set[str] = set()
        self._ledger = Ledger(options)
        self._membership: Membership | None = None

    def take(self, events: Sequence[StoredEvent]) -> None:
        """Take the values of the events that are configured, known and valid. They are owed until they are sent."""
        now_ms, cut_off = self._clock.wall_ms(), self._cut_off()
        second_opinions = self._second_opinions(events, cut_off)
        for stored in events:
            try:
                self._take(stored, now_ms, cut_off, second_opinions)
            except Exception:  # noqa: BLE001 - one unexpected event must not stop all later events
                _log.exception("an event could not be processed", code="event_not_processed", event_id=stored.event_id)
                self._count.dropped({"unexpected": 1})

    def _take(
        self, stored: StoredEvent, now_ms: int, cut_off: Collection[str], second_opinions: Collection[GroupKey]
    ) -> None:
        mapped = data_of(stored, self._options)
        if mapped.key.cluster in cut_off and stored.event.source is not Source.KAFKA:
            mapped = Mapped(mapped.key, held={Held.UNKNOWN: len(mapped.group)}, gone=mapped.gone)
        self._count.dropped(mapped.held)
        if mapped.gone:
            self._inside().leaves(mapped.key)
        data = [] if mapped.heartbeat is None or not self._beats(mapped) else [mapped.heartbeat]
        is_second = stored.event.source is Source.KAFKA and mapped.key in second_opinions
        if mapped.group and self._admitted(stored, mapped) and not is_second:
            data += mapped.group
        for datum in data:
            self._owe(datum, stored, now_ms)

    def _second_opinions(self, events: Sequence[StoredEvent], cut_off: Collection[str]) -> Collection[GroupKey]:
        """The groups that a healthy Burrow judges, so that `watch` has only a second opinion on them."""
        of_watch = (each.event for each in events if each.event.source is Source.KAFKA)
        keys = {GroupKey(each.cluster, each.consumer) for each in of_watch if each.cluster not in cut_off}
        states = ((key, self._group(key)) for key in keys)
        return {key for key, state in states if state is not None and state.summary.source is not Source.KAFKA}

    def due_in(self) -> float:
        return self._schedule.due_in()

    def send(self) -> Sending:
        """Send the newest value of each metric. Drop values older than ``ttl_s``, because they help no alarm."""
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
        return self._buffer.oldest(log_id)

    def close(self) -> None:
        self._sender.close()

    def _sent(self) -> SendOutcome:
        data = self._buffer.data()
        try:
            return self._sender.send(data)
        except Exception as error:  # noqa: BLE001 - the outermost loop of the reporter: no error may end it
            _log.exception("sending to CloudWatch failed unexpectedly", code="cloudwatch_send_failed")
            fault = Fault(FaultKind.UNEXPECTED, f"{type(error).__name__}: {error}")
            return SendOutcome(delivered=(), refused=(), kept=tuple(data), calls=0, fault=fault)

    def _beats(self, mapped: Mapped) -> bool:
        """Whether to send a cluster's heartbeat. The number of clusters has a limit: clients can invent names."""
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
        """The groups inside the limit. At first, they are the groups that the previous leader saved in the log."""
        if self._membership is None:
            try:
                self._membership = Membership.restore(self._recall(_INSIDE), self._options)
            except ValueError as error:
                _log.error("the groups with metrics are chosen again", code="groups_chosen_again", reason=str(error))
                self._membership = Membership(self._options)
        return self._membership

    def _note(self, outcome: SendOutcome) -> None:
        inside = self._inside()
        # A log that replaced another log has no notes yet.
        if inside.changed or (inside.inside and self._recall(_INSIDE) is None):
            self._remember(_INSIDE, inside.dump())
            inside.kept()
        self._remember(REPORT_NOTE, self._ledger.report(outcome, inside, self._clock.wall_ms()))


class _Counts:
    """The counters of the reporter, with its name as a label."""

    def __init__(self, reporter: str, count: Callable[..., None]) -> None:
        self._reporter = reporter
        self._count = count

    def dropped(self, reasons: Mapping[str, int] | Mapping[Held, int]) -> None:
        for reason, many in reasons.items():
            if many:
                self._count(telemetry.REPORTER_DROPPED.name, many, reporter=self._reporter, reason=reason)

    def outcome(self, outcome: str, many: int) -> None:
        if many:
            self._count(telemetry.REPORTER_CLOUDWATCH_DATA.name, many, reporter=self._reporter, outcome=outcome)


class _Owed(NamedTuple):
    """A datum that is not sent yet. ``observed_ms`` is the log time at which its event was observed."""

    datum: Datum
    log_id: str
    seq: int
    observed_ms: int


class NewestValues:
    """The newest unsent datum of each metric of the present log: its size does not grow in an outage."""

    def __init__(self) -> None:
        self._log_id = ""
        self._owed: dict[MetricKey, _Owed] = {}

    def put(self, datum: Datum, stored: StoredEvent) -> None:
        """Add a datum. Ignore it if a datum of the same metric with a later time of observation is there already."""
        observed_ms = stored.log_time_ms - max(0, stored.received_at_ms - stored.event.observed_at_ms)
        self._log_id = stored.log_id
        there = self._owed.get(datum.key)
        if there is None or there.log_id != stored.log_id or observed_ms >= there.observed_ms:
            self._owed[datum.key] = _Owed(datum, stored.log_id, stored.seq, observed_ms)

    def expire(self, before_ms: int) -> int:
        """Drop the data that were observed before that log time. Return the number of dropped data."""
        late = [key for key, owed in self._owed.items() if owed.observed_ms < before_ms or owed.log_id != self._log_id]
        for key in late:
            del self._owed[key]
        return len(late)

    def data(self) -> list[Datum]:
        return [owed.datum for owed in self._owed.values()]

    def settle(self, data: Iterable[Datum]) -> None:
        for datum in data:
            self._owed.pop(datum.key, None)

    def oldest(self, log_id: str) -> int | None:
        return min((owed.seq for owed in self._owed.values() if owed.log_id == log_id), default=None)


class Schedule:
    """Deadlines every ``interval_s`` on the boot clock, even if a send takes long. Missed deadlines are skipped.

    After a fault that a person must solve, the next attempt comes after 30 s. After any other fault, the delay is short
    at first, and then doubles. It has a random part, so that many publishers do not retry at the same time.
    """

    def __init__(self, interval_s: float, monotonic: Callable[[], float], random: Random) -> None:
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._unavailable = Backoff(1.0, min(60.0, interval_s))
        self._random = random
        self._faults = 0
        self._deadline = self._due_at = monotonic() + min(_FIRST_S, interval_s)

    def due_in(self) -> float:
        """Seconds until the next send. 0 or less means now."""
        return self._due_at - self._monotonic()

    def went_well(self) -> None:
        """Record a successful send. The next send is due at the next deadline that has not passed."""
        self._faults = 0
        behind = max(0.0, self._monotonic() - self._deadline)
        self._deadline += (behind // self._interval_s + 1) * self._interval_s
        self._due_at = self._deadline

    def failed(self, kind: FaultKind) -> None:
        self._faults += 1
        self._due_at = self._monotonic() + self._wait_s(kind)

    def _wait_s(self, kind: FaultKind) -> float:
        if kind in _SLOW:
            return _SLOWLY_S
        backoff = _THROTTLED if kind is FaultKind.THROTTLED else self._unavailable
        return backoff.spread_seconds(self._faults, self._random)


class Ledger:
    """The newest refusal of each metric, and the last data that CloudWatch accepted. At most 50 of each."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._refused: dict[str, RefusedDatum] = {}
        self._sent: tuple[Sent, ...] = ()

    def refused(self, refusal: BatchRefusal, now_ms: int) -> None:
        """Keep a refusal. It replaces an older refusal of the same metric, because each send may refuse the metric."""
        what = _what(refusal.datum)
        self._refused.pop(what, None)
        self._refused[what] = RefusedDatum(what, refusal.reason, refusal.text, now_ms)
        if len(self._refused) > _SHOWN:
            del self._refused[next(iter(self._refused))]

    def report(self, outcome: SendOutcome, inside: Membership, now_ms: int) -> bytes:
        if outcome.delivered:
            self._sent = tuple(map(_sent, islice(outcome.delivered, _SHOWN)))
        return msgspec.json.encode(
            Report(
                at_ms=now_ms,
                sent_count=len(outcome.delivered),
                facts=tuple(self._facts(outcome, inside)),
                sent=self._sent,
                refused=tuple(reversed(self._refused.values())),
            )
        )

    def _facts(self, outcome: SendOutcome, inside: Membership) -> list[Fact]:
        options = self._options
        outside = f"{inside.outside:,}" if inside.outside < OUTSIDE_BOUND else f"{OUTSIDE_BOUND:,} or more"
        return [
            Fact("namespace", options.namespace),
            Fact("sent", _summary(outcome)),
            Fact("groups with metrics", f"{inside.inside:,} of at most {options.max_groups:,}"),
            Fact("groups left out", outside),
        ]


def _summary(outcome: SendOutcome) -> str:
    kept = f"; {len(outcome.kept):,} wait for the next" if outcome.kept else ""
    return f"{len(outcome.delivered):,} data in {counted(outcome.calls, 'call')}{kept}"


def _sent(datum: Datum) -> Sent:
    return Sent(_what(datum), datum.value, datum.unit, datum.timestamp_ms)


def _what(datum: Datum) -> str:
    dimensions = ", ".join(f"{name}={value}" for name, value in datum.dimensions)
    return f"{datum.metric} {{{dimensions}}}" if dimensions else datum.metric
