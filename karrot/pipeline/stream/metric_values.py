"""Keeps the values of the metrics of a command of the pipeline, for a scrape."""

from collections.abc import Iterator, Sequence
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from karrot.telemetry import Metric


class MetricValues(Collector):
    """The values of these metrics by their labels. They begin again when the process starts again."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._lock = Lock()
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {
            metric: dict.fromkeys(((value,) for value in metric.known), 0.0) for metric in metrics
        }

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Make the families of a scrape."""
        for metric, values in self._values.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            with self._lock:
                samples = sorted(values.items())
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a value."""
        with self._lock:
            self._values[metric][labels] = value

    def add(self, metric: Metric, by: float, *labels: str) -> None:
        """Add to a value; the first value is 0."""
        with self._lock:
            values = self._values[metric]
            values[labels] = values.get(labels, 0.0) + by
