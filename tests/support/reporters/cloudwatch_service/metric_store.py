"""Stores the fake CloudWatch's metrics and calls, and shows them as a page and as JSON.

The store has a limit, drops the oldest entries first, and is safe to use from several threads.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jinja2 import Environment

from karrot.text import to_second

Dimensions = tuple[tuple[str, str], ...]
_LATEST_CALLS = 10
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5">
<title>Fake CloudWatch</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8885; }
  td { vertical-align: baseline; }
  .time { white-space: nowrap; }
  .names { overflow-wrap: anywhere; min-width: 9rem; }
  .number { text-align: right; font-variant-numeric: tabular-nums; }
  td.refused { color: light-dark(#a40000, #ff8a80); }
  p.note { opacity: .75; }
</style>
<h1>Fake CloudWatch</h1>
<p class="note">This is a local fake of Amazon CloudWatch. It accepts PutMetricData with Amazon's limits,
and sends nothing to AWS. You can read the same data as <a href="/points">JSON</a>.</p>
<h2>Latest calls</h2>
<div class="wide"><table>
<thead><tr><th>At (UTC)<th class="number">Answer<th>Code<th class="number">Data<th class="number">Bytes
<th class="number">On the wire</thead>
{% for call in calls %}
<tr><td class="time">{{ call.at_ms | moment }}
<td class="number{% if call.code %} refused{% endif %}">{{ call.status }}
<td>{{ call.code or "kept" }}<td class="number">{{ call.data }}<td class="number">{{ call.bytes }}
<td class="number">{{ call.wire_bytes }}{{ " gzip" if call.gzip }}
{% endfor %}
</table></div>
{% for namespace in metrics | groupby("0.namespace") %}
<h2>{{ namespace.grouper }}: {{ namespace.list | length }} metrics</h2>
<div class="wide"><table>
<thead><tr><th>Metric<th>Dimensions<th class="number">Newest value<th>Unit<th>At (UTC)<th class="number">Points</thead>
{% for id, data in namespace.list %}{% set newest = data[-1] %}
<tr><td>{{ id.metric }}
<td class="names">{% for name, value in id.dimensions %}
{{ name }}=<wbr>{{ value }}{{ "" if loop.last else ", " }}{% endfor %}

<td class="number">{% for point in newest.points()[-1:] %}{{ "%.12g" | format(point.value) }}{% endfor %}
<td>{{ newest.unit or "" }}<td class="time">{{ newest.timestamp_ms | moment }}<td class="number">{{ data | length }}
{% endfor %}
</table></div>
{% else %}
<p>No metrics are stored yet.</p>
{% endfor %}
</html>
"""


class MetricId(NamedTuple):
    """The identity of a metric. The order of dimensions does not matter in CloudWatch, so they are sorted."""

    namespace: str
    metric: str
    dimensions: Dimensions


class StoredPoint(NamedTuple):
    """One value of a metric."""

    timestamp_ms: int
    value: float


class Statistics(NamedTuple):
    """A statistic set as the client sent it."""

    sample_count: float
    sum: float
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class StoredDatum:
    """One accepted datum. ``unit`` is ``None`` if the request had no unit."""

    id: MetricId
    timestamp_ms: int
    values: tuple[float, ...]
    counts: tuple[float, ...]
    statistics: Statistics | None
    unit: str | None
    resolution: int

    def points(self) -> tuple[StoredPoint, ...]:
        """A point for each value. A statistic set has two points: its minimum and its maximum."""
        ends = (self.statistics.minimum, self.statistics.maximum) if self.statistics else ()
        return tuple(StoredPoint(self.timestamp_ms, value) for value in (*self.values, *ends))


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to PutMetricData.

    ``code`` is "" for an accepted request. ``kept`` says whether the ``data`` were stored. ``bytes`` is the size of the
    uncompressed body, ``wire_bytes`` the size as received. ``access_key`` and ``region`` come from the signature.
    """

    at_ms: int
    status: int
    code: str
    data: int
    kept: bool
    bytes: int
    wire_bytes: int
    gzip: bool
    access_key: str
    region: str


def sorted_dimensions(dimensions: Mapping[str, str] | Iterable[tuple[str, str]]) -> Dimensions:
    """A metric's dimensions in sorted order."""
    return tuple(sorted(dimensions.items() if isinstance(dimensions, Mapping) else dimensions))


class MetricStore:
    """Keeps at most ``most`` data and ``most`` calls. If the store is full, a new entry replaces the oldest."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._data: deque[StoredDatum] = deque()
        self._by_metric: defaultdict[MetricId, deque[StoredDatum]] = defaultdict(deque)
        self._calls: deque[Call] = deque(maxlen=most)

    def keep(self, data: Iterable[StoredDatum]) -> None:
        """Store all data of a request together, so that no reader sees half a request."""
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
        """Add a call."""
        with self._lock:
            self._calls.append(call)

    def data_of(self, metric: MetricId) -> list[StoredDatum]:
        """The data of one metric, in the order in which they were accepted."""
        with self._lock:
            return list(self._by_metric.get(metric, ()))

    def metrics(self) -> list[MetricId]:
        """The stored metrics, sorted."""
        with self._lock:
            return sorted(self._by_metric)

    def calls(self) -> list[Call]:
        """The calls, in the order in which they were answered."""
        with self._lock:
            return list(self._calls)


def metrics_page(store: MetricStore) -> str:
    """The HTML page with the stored metrics."""
    metrics = [(metric, data) for metric in store.metrics() if (data := store.data_of(metric))]
    calls = store.calls()[: -_LATEST_CALLS - 1 : -1]
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["moment"] = lambda ms: to_second(datetime.fromtimestamp(ms / 1000, UTC))
    return environment.from_string(_PAGE).render(metrics=metrics, calls=calls)


def all_points(store: MetricStore) -> dict[str, Any]:
    """Every metric with its points as ``[timestamp_ms, value]``, and the number of calls for each answer."""
    return {
        "metrics": [_metric(metric, store.data_of(metric)) for metric in store.metrics()],
        "calls": _counted(store.calls()),
    }


def _metric(metric: MetricId, data: Sequence[StoredDatum]) -> dict[str, Any]:
    return {
        "namespace": metric.namespace,
        "metric": metric.metric,
        "dimensions": dict(metric.dimensions),
        "unit": data[-1].unit if data else None,
        "points": [list(point) for datum in data for point in datum.points()],
    }


def _counted(calls: Sequence[Call]) -> dict[str, int]:
    answers = [f"{call.status} {call.code}".strip() for call in calls]
    return {answer: answers.count(answer) for answer in sorted(set(answers))}
