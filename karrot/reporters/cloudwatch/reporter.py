"""Sends the newest state of every group to CloudWatch at a fixed rate, and saves a report on each send.

The log keeps the newest state of each group, so no value waits in memory. After a failure, the next send has the newest
states of the same groups.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice, starmap
from random import Random
from typing import NamedTuple

import msgspec
import structlog

from karrot import telemetry
from karrot.aws.classify_errors import Fault, FaultKind
from karrot.event import Source
from karrot.eventlog.base import Cursor, EventSummary, GroupState
from karrot.reporters.base import (
    REPORT_NOTE,
    Context,
    Fact,
    RefusedDatum,
    Report,
    ReportFailed,
    Sent,
    Unreported,
    retry_delay_s,
)
from karrot.reporters.cloudwatch.data import REASONS, Datum, MetricKey, why_refused
from karrot.reporters.cloudwatch.group_data import data_of, heartbeat
from karrot.reporters.cloudwatch.membership import OUTSIDE_BOUND, Membership
from karrot.reporters.cloudwatch.sender import Refusal, Sender, SendOutcome
from karrot.settings.options import CloudWatch as Options
from karrot.settings.options import Layout
from karrot.telemetry import Metric
from karrot.text import counted, instant

_SHOWN = 50
_INSIDE = "inside"
"""The key under which the log keeps the groups inside the limit."""

_MOST_CLUSTERS = 100
_SAME_BEAT_MS = 100
"""Two times of one webhook can differ by this, because both are computed from the wall clock."""

_SLOWLY_S = 30.0
_SLOW = (FaultKind.CREDENTIALS, FaultKind.PERMISSION, FaultKind.REGION)

_log = structlog.get_logger(__name__)


class _Newest(NamedTuple):
    """The newest datum of a metric, its cluster, and the log time of its observation."""

    datum: Datum
    cluster: str
    log_time_ms: int


class _News(NamedTuple):
    """The new data since the last send, the log time of each cluster's heartbeat, and the dropped values by reason."""

    data: dict[MetricKey, _Newest]
    heard: dict[str, int]
    dropped: Counter[str]


class CloudWatchReporter:
    """The `karrot.reporters.base.PushReporter` of CloudWatch."""

    def __init__(self, options: Options, sender: Sender, context: Context, random: Random) -> None:
        self.every_s = float(options.interval_s)
        self._options, self._sender, self._context, self._random = options, sender, context, random
        self._log_id = ""
        self._beats: dict[str, int] = {}
        self._settled: dict[MetricKey, int] = {}
        """The timestamps of the data that the last send delivered or refused. The next send leaves out these data."""
        self._failures = 0
        self._fault: Fault | None = None
        self._refused: dict[str, RefusedDatum] = {}
        self._sent: tuple[Sent, ...] = ()

    @cached_property
    def _groups(self) -> Membership:
        """The groups inside the limit, beginning with those that the previous leader saved in the log."""
        return Membership(self._options, self._context.recall(_INSIDE))

    def report(self, events: Unreported) -> None:
        after = events.cursor
        self.publish(events.groups(), after, self._context.heard(), fails_until_a_call=True)

    def close(self) -> None:
        self._sender.close()

    def publish(
        self,
        states: Iterable[GroupState],
        after: Cursor,
        heard: Mapping[str, int],
        *,
        fails_until_a_call: bool = False,
    ) -> None:
        """Send the values of the verdicts after a cursor, and a heartbeat of each cluster with a newer event.

        ``heard`` has the time of each cluster's last webhook. Values older than ``ttl_s`` are dropped, because alarms
        do not use them. Raises `ReportFailed`. With ``fails_until_a_call``, a failure lasts until a call succeeds, even
        if there is no value to send.
        """
        if self._log_id != after.log_id:
            self._log_id, self._beats = after.log_id, {}  # log times of two logs cannot be compared
        now_ms, news = self._context.clock.wall_ms(), self._news(states, after, heard)
        new = [each.datum for key, each in news.data.items() if self._settled.get(key) != each.datum.timestamp_ms]
        checked = [(datum, why_refused(datum, now_ms)) for datum in new]
        outcome = self._sender.send([datum for datum, why in checked if why is None])
        outcome.refused += [Refusal(datum, why, REASONS[why]) for datum, why in checked if why is not None]
        for datum, reason, text in outcome.refused:
            self._add(telemetry.REPORTER_DROPPED, 1, reason=reason)
            self._refused.pop(_what(datum), None)  # move a metric that is refused again to the end
            self._refused[_what(datum)] = RefusedDatum(_what(datum), reason, text, instant(now_ms))
        self._refused = dict(list(self._refused.items())[-_SHOWN:])
        settled = (*outcome.delivered, *(each.datum for each in outcome.refused))
        self._settled |= {each.key: each.timestamp_ms for each in settled}
        self._add(telemetry.REPORTER_CLOUDWATCH_DATA, len(outcome.delivered), outcome="sent")
        self._save_report(outcome, kept=len(new) - len(settled))
        self._fault = outcome.fault or (self._fault if fails_until_a_call and not outcome.calls else None)
        if self._fault is not None:
            self._failures += 1
            raise ReportFailed(self._fault.kind.value, self._fault.text, self._wait_s(self._fault.kind))
        for reason, many in news.dropped.items():
            self._add(telemetry.REPORTER_DROPPED, many, reason=reason)
        self._failures = 0
        self._settled = {key: each.datum.timestamp_ms for key, each in news.data.items()}
        self._beats |= news.heard

    def _news(self, states: Iterable[GroupState], after: Cursor, heard: Mapping[str, int]) -> _News:
        context, options = self._context, self._options
        now_ms, log_ms, cut_off = context.clock.wall_ms(), context.log_time_ms(), context.cut_off()
        news = _News({}, {}, Counter())
        beats = {cluster: log_ms - (now_ms - at_ms) for cluster, at_ms in heard.items() if cluster not in cut_off}
        for state in states:
            key = state.key
            if state.gone:
                self._groups.leaves(key)
                continue
            seq, at_ms = _kafka_verdict(state)
            if seq > after.seq:
                beats[key.cluster] = max(at_ms, beats.get(key.cluster, 0))
            verdict = state.judged(cut_off, log_ms, self._summary)
            if verdict.seq > after.seq:
                try:
                    self._take(verdict, news, log_ms, is_cut_off=verdict.has_old_lag(cut_off))
                except Exception:  # noqa: BLE001 - one unexpected group must not stop all others
                    _log.exception("a group could not be processed", code="event_not_processed", seq=state.seq)
                    news.dropped["unexpected"] += 1
        beating: dict[MetricKey, _Newest] = {}
        for cluster, at_ms in beats.items() if Layout.DIMENSIONS in options.layouts else ():
            if at_ms < max(log_ms - 1000 * options.ttl_s, self._beats.get(cluster, -_SAME_BEAT_MS) + _SAME_BEAT_MS):
                continue
            if cluster not in self._beats and len(self._beats | news.heard) >= _MOST_CLUSTERS:
                news.dropped["over_cap"] += 1  # clients can invent names
                continue
            news.heard[cluster] = at_ms
            beat = heartbeat(cluster, now_ms - (log_ms - at_ms), options)
            beating[beat.key] = _Newest(beat, cluster, at_ms)
        return news._replace(data=beating | news.data)  # the report shows the first data

    def _summary(self, seq: int) -> EventSummary | None:
        stored = self._context.event(seq)
        return stored.summary if stored else None

    def _take(self, state: GroupState, news: _News, log_ms: int, *, is_cut_off: bool) -> None:
        if state.is_test or state.is_of_burrow or not self._options.wants(state.key.consumer):
            return
        group = data_of(state, self._options)
        news.dropped.update(group.held)
        if is_cut_off:
            news.dropped["unknown"] += len(group.data)
        elif state.log_time_ms < log_ms - 1000 * self._options.ttl_s:
            news.dropped["expired"] += len(group.data)
        elif group.data and not self._groups.admits(state.key, state.log_time_ms):
            news.dropped["over_cap"] += 1
        elif group.data:
            self._add(telemetry.REPORTER_CLOUDWATCH_DATA, group.cut, outcome="name_cut")
            for datum in group.data:
                there = news.data.get(datum.key)
                if there is not None and there.cluster != state.key.cluster:
                    news.dropped["name_collision"] += 1
                if there is None or there.log_time_ms <= state.log_time_ms:
                    news.data[datum.key] = _Newest(datum, state.key.cluster, state.log_time_ms)

    def _wait_s(self, kind: FaultKind) -> float:
        """The seconds to the next attempt. A random part prevents simultaneous retries of many publishers."""
        if kind in _SLOW:
            return _SLOWLY_S
        limits = (0.5, 60.0) if kind is FaultKind.THROTTLED else (1.0, min(60.0, self.every_s))
        return retry_delay_s(self._failures, self._random, first_s=limits[0], most_s=limits[1])

    def _add(self, metric: Metric, many: int, **labels: str) -> None:
        if many:
            self._context.count(metric, many, reporter=self._context.name, **labels)

    def _save_report(self, outcome: SendOutcome, kept: int) -> None:
        inside, context = self._groups, self._context
        # A log that replaced another log has no notes yet.
        if inside.changed or (inside.inside and context.recall(_INSIDE) is None):
            context.remember(_INSIDE, inside.dump())
            inside.changed = False
        if outcome.delivered:
            first = islice(outcome.delivered, _SHOWN)
            self._sent = tuple(Sent(_what(each), each.value, each.unit, instant(each.timestamp_ms)) for each in first)
        outside = f"{inside.outside:,}" if inside.outside < OUTSIDE_BOUND else f"{OUTSIDE_BOUND:,} or more"
        waiting = f"; {kept:,} wait for the next" if kept else ""
        facts = {
            "namespace": self._options.namespace,
            "sent": f"{len(outcome.delivered):,} data in {counted(outcome.calls, 'call')}{waiting}",
            "groups with metrics": f"{inside.inside:,} of at most {self._options.max_groups:,}",
            "groups left out": outside,
        }
        shown, refused = tuple(starmap(Fact, facts.items())), tuple(reversed(self._refused.values()))
        report = Report(instant(context.clock.wall_ms()), len(outcome.delivered), shown, self._sent, refused)
        context.remember(REPORT_NOTE, msgspec.json.encode(report))


def _kafka_verdict(state: GroupState) -> tuple[int, int]:
    """The sequence number and the log time of the newest verdict of ``watch``. Both are 0 without such a verdict."""
    second = state.summary.second
    if state.summary.source is Source.KAFKA:
        return state.seq, state.log_time_ms
    return (second.seq, second.log_time_ms) if second and second.source is Source.KAFKA else (0, 0)


def _what(datum: Datum) -> str:
    dimensions = ", ".join(f"{name}={value}" for name, value in datum.dimensions)
    return f"{datum.metric} {{{dimensions}}}" if dimensions else datum.metric
