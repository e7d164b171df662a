"""Keeps the values of the metrics of a command of the pipeline, for a scrape."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
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
        for metric, values in self._values.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
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


_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsPort(ThreadingHTTPServer):
    """Listens on all addresses, for IPv4 and, if the machine has it, IPv6. Port 0 takes a free port.

    ``health`` returns why the process is not healthy, or ``None``. Raises OSError if the port is in use.
    """

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True

    def __init__(self, registry: CollectorRegistry, port: int, health: Callable[[], str | None]) -> None:
        super().__init__(("", port), partial(_Handler, registry, health))
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


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def __init__(self, registry: CollectorRegistry, health: Callable[[], str | None], *request: object) -> None:
        self._registry, self._health = registry, health
        super().__init__(*request)  # type: ignore[arg-type]  # what the server passes

    def do_GET(self) -> None:
        path, kind, status = self.path.partition("?")[0], _PLAIN, HTTPStatus.OK
        if path == "/metrics":
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            body = encode(self._registry)
        elif path == "/healthz":
            trouble = self._health()
            status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
            body = f"{trouble or 'ok'}\n".encode()
        else:
            status, body = HTTPStatus.NOT_FOUND, b"this port has /metrics and /healthz\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape and a probe come every few seconds."""
