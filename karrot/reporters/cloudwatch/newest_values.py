"""What is owed to CloudWatch: of each metric the newest value, and which event it comes from."""

from collections.abc import Iterable
from typing import NamedTuple

from karrot.eventlog.base import StoredEvent
from karrot.reporters.cloudwatch.datum import Datum, MetricKey

__all__ = ["NewestValues"]


class _Owed(NamedTuple):
    """A datum on its way. ``observed_ms`` is the log's time when its event was observed."""

    datum: Datum
    log_id: str
    seq: int
    observed_ms: int


class NewestValues:
    """As many data as there are metrics, whatever the length of an outage. Not for several threads.

    A log that replaced another one has a time of its own: what is owed of the other one is as good as expired.
    """

    def __init__(self) -> None:
        self._log_id = ""
        self._owed: dict[MetricKey, _Owed] = {}

    def __len__(self) -> int:
        return len(self._owed)

    def put(self, datum: Datum, stored: StoredEvent) -> None:
        """Owe a datum, unless a newer one of its metric is owed already. Age is told by observation."""
        observed_ms = stored.log_time_ms - max(0, stored.received_at_ms - stored.event.observed_at_ms)
        self._log_id = stored.log_id
        there = self._owed.get(datum.key)
        if there is None or there.log_id != stored.log_id or observed_ms >= there.observed_ms:
            self._owed[datum.key] = _Owed(datum, stored.log_id, stored.seq, observed_ms)

    def expire(self, before_ms: int) -> int:
        """Owe nothing any more that was observed before that log time; return how many data that were."""
        late = [key for key, owed in self._owed.items() if owed.observed_ms < before_ms or owed.log_id != self._log_id]
        for key in late:
            del self._owed[key]
        return len(late)

    def data(self) -> list[Datum]:
        """All that is owed."""
        return [owed.datum for owed in self._owed.values()]

    def settle(self, data: Iterable[Datum]) -> None:
        """Owe these no more: they were sent, or refused for good."""
        for datum in data:
            owed = self._owed.get(datum.key)
            if owed is not None and owed.datum is datum:
                del self._owed[datum.key]

    def oldest(self, log_id: str) -> int | None:
        """The number of the oldest event of a log that something is owed of."""
        return min((owed.seq for owed in self._owed.values() if owed.log_id == log_id), default=None)
