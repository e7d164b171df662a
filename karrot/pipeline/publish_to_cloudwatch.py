"""Publishes the newest verdict of each group to CloudWatch, for the judge ``burrow``.

Karrot's CloudWatch reporter sends the verdicts from the driver, because only a single publisher can limit the groups
and the rate of calls. A group with one value needs 0.13 ms of processor time. The reporter expects the states of one
event log with one clock. So all verdicts count as events of one log with the wall clock.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event
from typing import Final

from pyspark.sql import SparkSession

from karrot.clock import Clock, SystemClock
from karrot.event import GroupKey
from karrot.eventlog.base import Cursor, GroupState, Limits, StoredEvent
from karrot.eventlog.next_group_state import Arrival, after
from karrot.pipeline.store.hadoop_filesystem import read_text, write_text
from karrot.reporters.base import Context, ReportFailed
from karrot.reporters.cloudwatch.boto_client import PutMetricData, open_client
from karrot.reporters.cloudwatch.reporter import CloudWatchReporter
from karrot.reporters.cloudwatch.sender import Sender
from karrot.settings.options import CloudWatch as Options

_BEGINNING: Final = Cursor("road", 0)


@dataclass(slots=True)
class Publisher:
    """Publishes one batch at a time. ``recall`` returns what the last ``remember`` of a name stored, or ``None``."""

    options: Options
    recall: Callable[[str], bytes | None]
    remember: Callable[[str, bytes], None]
    clock: Clock
    open_client: Callable[[], PutMetricData]
    pause: Callable[[float], object]
    random: Random = field(default_factory=Random)
    _groups: dict[GroupKey, GroupState] = field(default_factory=dict)
    _number: int = 0
    _reporter: CloudWatchReporter = field(init=False)

    def __post_init__(self) -> None:
        sender = Sender(
            self.open_client,
            self.options.namespace,
            count=_uncounted,
            pause=self.pause,
            monotonic=lambda: self.clock.boot_ms() / 1000,
        )
        context = Context("cloudwatch", {}, _uncounted, self.clock, self.clock.wall_ms, self.recall, self.remember)
        self._reporter = CloudWatchReporter(self.options, sender, context, self.random)

    def publish(self, events: Iterable[StoredEvent]) -> str:
        """Send the newest event of each group, and return why not everything was sent.

        Each call tries once: the next call sends what is not too old by then.
        """
        oldest_ms = self.clock.wall_ms() - 1000 * self.options.ttl_s
        self._groups = {key: each for key, each in self._groups.items() if each.log_time_ms >= oldest_ms}
        heard = self._take(events)
        try:
            self._reporter.publish(self._groups.values(), _BEGINNING, heard)
        except ReportFailed as failed:
            return f"CloudWatch: {failed.reason}: {failed.text}"
        return ""

    def _take(self, events: Iterable[StoredEvent]) -> dict[str, int]:
        """Add events to the groups. Return the time of each cluster's last event from Burrow."""
        now_ms, heard = self.clock.wall_ms(), dict[str, int]()
        for stored in events:
            self._number += 1
            event = stored.event
            key, log_ms = GroupKey(event.cluster, event.consumer), min(stored.received_at_ms, now_ms)
            observed_ms = log_ms - max(0, stored.received_at_ms - event.observed_at_ms)
            stale_ms = Limits().stale_after_ms
            arrived = Arrival(key, event, stored.body, log_ms, observed_ms, stored.summary, stale_ms)
            self._groups[key] = after(self._groups.get(key), self._number, arrived)
            if event.from_burrow:
                heard[event.cluster] = max(arrived.log_time_ms, heard.get(event.cluster, 0))
        return heard


def _uncounted(*_: object, **_labels: object) -> None:
    """Count nothing: the job serves no metrics of the service."""


def publisher_beside(spark: SparkSession, checkpoint: str, options: Options, stop: Event) -> Publisher:
    """Return a publisher with notes in a folder next to the checkpoint. They stay if the checkpoint is deleted."""

    def path(name: str) -> str:
        return f"{checkpoint.rstrip('/')}-notes/{name}.json"

    def recall(name: str) -> bytes | None:
        text = read_text(spark, path(name))
        return None if text is None else text.encode()

    def remember(name: str, note: bytes) -> None:
        write_text(spark, path(name), note.decode())

    return Publisher(options, recall, remember, SystemClock(), partial(open_client, options, os.environ), stop.wait)
