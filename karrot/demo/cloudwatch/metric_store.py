"""Stores the fake CloudWatch's metrics and calls: bounded, oldest dropped first, safe to use from several threads."""

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Dimensions = tuple[tuple[str, str], ...]


class MetricId(NamedTuple):
    """What CloudWatch takes for one metric: the order of its dimensions does not matter, so they are sorted."""

    namespace: str
    metric: str
    dimensions: Dimensions


class StoredPoint(NamedTuple):
    """One value of a metric."""

    timestamp_ms: int
    value: float


class Statistics(NamedTuple):
    """A statistic set as it was sent."""

    sample_count: float
    sum: float
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class StoredDatum:
    """One datum as it was taken. ``unit`` is None where none was sent."""

    id: MetricId
    timestamp_ms: int
    values: tuple[float, ...]
    counts: tuple[float, ...]
    statistics: Statistics | None
    unit: str | None
    resolution: int

    def points(self) -> tuple[StoredPoint, ...]:
        """A point for each value; of a statistic set its minimum and its maximum."""
        ends = (self.statistics.minimum, self.statistics.maximum) if self.statistics else ()
        return tuple(StoredPoint(self.timestamp_ms, value) for value in (*self.values, *ends))


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to PutMetricData.

    ``status`` is None where no answer was sent and ``code`` is then the fault's name, "" for an accepted request,
    else the query code. ``kept`` tells whether its ``data`` were stored. ``bytes`` are uncompressed, ``wire_bytes``
    as received. ``access_key`` and ``region`` are what the signature names.
    """

    at_ms: int
    status: int | None
    code: str
    data: int
    kept: bool
    bytes: int
    wire_bytes: int
    gzip: bool
    access_key: str
    region: str


def sorted_dimensions(dimensions: Mapping[str, str] | Iterable[tuple[str, str]]) -> Dimensions:
    """The one order in which a metric's dimensions are kept."""
    return tuple(sorted(dimensions.items() if isinstance(dimensions, Mapping) else dimensions))


class MetricStore:
    """At most ``most`` data and calls; the oldest make room."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._data: deque[StoredDatum] = deque()
        self._by_metric: defaultdict[MetricId, deque[StoredDatum]] = defaultdict(deque)
        self._calls: deque[Call] = deque(maxlen=most)

    def keep(self, data: Iterable[StoredDatum]) -> None:
        """All at once: no reader sees half a request."""
        with self._lock:
            for datum in data:
                self._data.append(datum)
                self._by_metric[datum.id].append(datum)
            while len(self._data) > self._most:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._data.popleft()
        series = self._by_metric[oldest.id]
        series.popleft()
        if not series:
            del self._by_metric[oldest.id]

    def record(self, call: Call) -> None:
        """One more call."""
        with self._lock:
            self._calls.append(call)

    def forget(self) -> None:
        """Empty, as after the start."""
        with self._lock:
            self._data.clear()
            self._by_metric.clear()
            self._calls.clear()

    def data(self) -> list[StoredDatum]:
        """Everything, in the order in which it was taken."""
        with self._lock:
            return list(self._data)

    def data_of(self, metric: MetricId) -> list[StoredDatum]:
        """The data of one metric, in the order in which they were taken."""
        with self._lock:
            return list(self._by_metric.get(metric, ()))

    def metrics(self) -> list[MetricId]:
        """Sorted."""
        with self._lock:
            return sorted(self._by_metric)

    def calls(self) -> list[Call]:
        """In the order in which they were answered."""
        with self._lock:
            return list(self._calls)
