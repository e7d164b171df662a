"""Sends events from the archive or a topic to CloudWatch, with Karrot's CloudWatch reporter on Spark's driver.

The reporter needs one event log with one clock. It also needs a store for values that survive a restart. Here the
archive or the topic takes the place of the log. This source can have lines of several logs, and each line has only one
time: when it was received. So all events count as events of one log, whose clock is the wall clock.

The reporter runs on the driver and not on the executors, for two reasons. Spark has already reduced the events of each
group to its newest ones. And only a single publisher can limit the groups and the rate of calls, and find the data that
CloudWatch refused. A group with one value costs 0.13 ms of processor time, so 50,000 groups take seven seconds on one
core.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import NamedTuple

import msgspec
import structlog

from karrot import telemetry
from karrot.clock import Clock
from karrot.event_json_line import MalformedLine, decode, event_of
from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import Context
from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, Dimensions, MetricKey
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.reporter import CloudWatchReporter
from karrot.reporters.cloudwatch.sender import BatchRefusal, Sender, SendOutcome

_LOG_ID = "road"
_SENT = "sent"
_TAKEN_AT_ONCE = 1000
_SUPERSEDED = "superseded"
_UNREADABLE = "unreadable"

_log = structlog.get_logger(__name__)


class SendInterrupted(Exception):  # noqa: N818 (names what happened)
    """The publisher was stopped while values waited for another attempt. The batch will be repeated."""


@dataclass(frozen=True, slots=True)
class NoteStore:
    """A store that survives a restart. ``recall`` returns what ``remember`` last stored under a name, or ``None``."""

    recall: Callable[[str], bytes | None]
    remember: Callable[[str, bytes], None]


class Published(NamedTuple):
    """Counts what was sent from a batch. ``left_out`` counts unsent values by reason; ``trouble`` is the last fault."""

    events: int = 0
    sent: int = 0
    calls: int = 0
    left_out: Mapping[str, int] = {}
    trouble: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether values became too old while CloudWatch did not accept them."""
        return bool(self.trouble and self.left_out.get("expired"))

    def __str__(self) -> str:
        text = f"CloudWatch: {self.sent:,} values of {self.events:,} events in {self.calls:,} calls"
        if self.left_out:
            text += f"; left out: {', '.join(f'{many:,} {why}' for why, many in sorted(self.left_out.items()))}"
        return f"{text}; {self.trouble}" if self.trouble else text


class SentNote:
    """The newest timestamp that was sent for each metric, stored in a `NoteStore`.

    A value older than ``keep_ms`` is never sent, so older timestamps are forgotten. If a timestamp is later than the
    moment at which its value was sent, that moment is stored instead. Otherwise, after a clock was ahead, new values of
    the metric would look old and not be sent.
    """

    def __init__(self, notes: NoteStore, keep_ms: int) -> None:
        self._notes = notes
        self._keep_ms = keep_ms
        self._newest = _read(notes.recall(_SENT))

    def is_newer(self, datum: Datum) -> bool:
        """Whether the datum is newer than everything that was sent for its metric."""
        return datum.timestamp_ms > self._newest.get(datum.key, -1)

    def add(self, data: Sequence[Datum], now_ms: int) -> None:
        """Store the timestamps of the data that were just sent."""
        if not data:
            return
        for datum in data:
            sent_ms = min(datum.timestamp_ms, now_ms)
            self._newest[datum.key] = max(sent_ms, self._newest.get(datum.key, sent_ms))
        oldest_ms = now_ms - self._keep_ms
        self._newest = {key: sent_ms for key, sent_ms in self._newest.items() if sent_ms >= oldest_ms}
        rows = [(key.metric, key.dimensions, sent_ms) for key, sent_ms in self._newest.items()]
        self._notes.remember(_SENT, msgspec.json.encode(rows))


class NewerDataSender(Sender):
    """Sends a datum only if it is newer than all data sent for its metric, so a repeated batch is not sent again."""

    def __init__(
        self,
        sent: SentNote,
        wall_ms: Callable[[], int],
        open_client: Callable[[], PutMetricData],
        namespace: str,
        *,
        count: Callable[..., None],
        pause: Callable[[float], object],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(open_client, namespace, count=count, pause=pause, monotonic=monotonic)
        self._sent = sent
        self._wall_ms = wall_ms

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send like `Sender.send`; refuse data that are not newer."""
        outcome = super().send([datum for datum in data if self._sent.is_newer(datum)])
        late = tuple(
            BatchRefusal(datum, _SUPERSEDED, "A value of this metric with the same or a newer time was already sent.")
            for datum in data
            if not self._sent.is_newer(datum)
        )
        self._sent.add(outcome.delivered, self._wall_ms())
        return replace(outcome, refused=(*outcome.refused, *late))


@dataclass(slots=True)
class Publisher:
    """Publishes batch after batch, in one thread at a time. ``wait`` waits some seconds and returns whether to stop."""

    options: Options
    notes: NoteStore
    clock: Clock
    open_client: Callable[[], PutMetricData]
    wait: Callable[[float], bool]
    random: Random = field(default_factory=Random)
    _counts: Counter[str] = field(default_factory=Counter)
    _left_out: Counter[str] = field(default_factory=Counter)
    _reporter: CloudWatchReporter = field(init=False)

    def __post_init__(self) -> None:
        sender = NewerDataSender(
            SentNote(self.notes, 1000 * self.options.ttl_s),
            self.clock.wall_ms,
            self.open_client,
            self.options.namespace,
            count=lambda **_: self._counts.update(calls=1),
            pause=self.wait,
            monotonic=lambda: self.clock.boot_ms() / 1000,
        )
        context = Context(
            name="cloudwatch",
            settings={},
            count=self._count,
            clock=self.clock,
            log_time_ms=self.clock.wall_ms,
            recall=self.notes.recall,
            remember=self.notes.remember,
        )
        self._reporter = CloudWatchReporter(self.options, sender, context, self.random)

    def publish(self, lines: Iterable[str]) -> Published:
        """Send the lines in order until each is sent, refused or too old. Raises `SendInterrupted` on a stop."""
        self._counts.clear()
        self._left_out.clear()
        events = self._events(lines)
        while some := list(islice(events, _TAKEN_AT_ONCE)):
            self._counts["events"] += len(some)
            self._reporter.take(some)
        trouble = self._send_all()
        counts = self._counts
        return Published(counts["events"], counts["sent"], counts["calls"], dict(self._left_out), trouble)

    def close(self) -> None:
        """Close the connections to AWS."""
        self._reporter.close()

    def _send_all(self) -> str:
        """Send until the reporter has nothing left to send. Return the last error."""
        last = ""
        while True:
            trouble = self._reporter.send().trouble
            last = f"{trouble.reason}: {trouble.text}" if trouble else last
            if self._reporter.owed(_LOG_ID) is None:
                return last
            _log.warning("not everything was sent", code="send_incomplete", reason=last)
            if self.wait(self._reporter.due_in()):
                raise SendInterrupted(last)

    def _events(self, lines: Iterable[str]) -> Iterator[StoredEvent]:
        now_ms = self.clock.wall_ms()
        for line in lines:
            try:
                stored = event_of(decode(line.encode()))
            except (MalformedLine, UnicodeEncodeError) as error:
                _log.warning("a line could not be read", code="line_unreadable", reason=str(error))
                self._left_out[_UNREADABLE] += 1
                continue
            yield replace(stored, log_id=_LOG_ID, log_time_ms=min(stored.received_at_ms, now_ms))

    def _count(self, name: str, by: float, **labels: str) -> None:
        """Keep those counts of the reporter that the summary shows."""
        if name == telemetry.REPORTER_DROPPED.name:
            self._left_out[labels["reason"]] += int(by)
        elif labels.get("outcome") == "sent":
            self._counts["sent"] += int(by)


def _read(note: bytes | None) -> dict[MetricKey, int]:
    if note is None:
        return {}
    try:
        rows = msgspec.json.decode(note, type=list[tuple[str, Dimensions, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.error(
            "the stored timestamps of sent values cannot be read", code="sent_times_unreadable", reason=str(error)
        )
        return {}
    return {MetricKey(metric, dimensions): sent_ms for metric, dimensions, sent_ms in rows}
