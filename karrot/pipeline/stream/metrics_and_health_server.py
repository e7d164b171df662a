"""Serves the metrics and the health of a long-running pipeline command on a port of its own."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from socketserver import ThreadingMixIn
from threading import Lock
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from karrot.telemetry import Metric, unit_of


class MetricValues(Collector):
    """The values of the given metrics by their labels. A restart of the process resets the values."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._lock = Lock()
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {
            metric: dict.fromkeys(((value,) for value in metric.known), 0.0) for metric in metrics
        }

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric, values in self._values.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels, unit=unit_of(metric.name))
            with self._lock:
                samples = sorted(values.items())
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        with self._lock:
            self._values[metric][labels] = value

    def add(self, metric: Metric, by: float, *labels: str) -> None:
        with self._lock:
            values = self._values[metric]
            values[labels] = values.get(labels, 0.0) + by


class MetricsPort(ThreadingMixIn, WSGIServer):
    """Serves ``/metrics`` and ``/healthz`` on all addresses, for IPv4 and, if the machine has it, IPv6.

    Port 0 takes a free port. ``health`` returns why the process is not healthy, or ``None``. Raises OSError if the port
    is in use.
    """

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True

    def __init__(self, registry: CollectorRegistry, port: int, health: Callable[[], str | None]) -> None:
        super().__init__(("", port), _QuietHandler)
        metrics = make_wsgi_app(registry)

        def answer(request: dict[str, Any], start: Any) -> Any:
            status, said = "404 Not Found", "this port has /metrics and /healthz"
            if request["PATH_INFO"] == "/metrics":
                return metrics(request, start)
            if request["PATH_INFO"] == "/healthz":
                problem = health()
                status, said = ("503 Service Unavailable", problem) if problem else ("200 OK", "ok")
            start(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{said}\n".encode()]

        self.set_app(answer)
        self.port: int = self.server_address[1]

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="metrics port", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _QuietHandler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape and a probe come every few seconds."""
