"""Puts the fake CloudWatch together: starts it, scripts its faults and reads what it stored."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from karrot.demo.cloudwatch.http_server import LoopbackServer
from karrot.demo.cloudwatch.injected_faults import Fault
from karrot.demo.cloudwatch.metric_store import (
    Call,
    MetricId,
    MetricStore,
    StoredDatum,
    StoredPoint,
    all_points,
    sorted_dimensions,
)
from karrot.demo.cloudwatch.request_handler import CallerKeys, Handler


class FakeCloudWatch:
    """CloudWatch's PutMetricData over HTTP on 127.0.0.1, stricter than any client may be loose.

    ``port`` 0 takes a free one. Timestamps are judged by ``clock_ms`` (epoch milliseconds), which is asked from the
    fake's own threads. At most ``keep`` data and calls are remembered. ``credentials`` gives out what
    callers sign with; without it every key holds.

    It serves from ``with`` or `start` on, until `close`. Raises OSError where the port is taken.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        keep: int = 1_000_000,
        names_members: bool = True,
        credentials: CallerKeys | None = None,
    ) -> None:
        self._store = MetricStore(keep)
        self._handler = Handler(self._store, clock_ms, credentials, names_members=names_members)
        self._server = LoopbackServer(port, self._handler.answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Serve, in threads."""
        self._server.start()

    def close(self) -> None:
        """Hang up on everybody and end every thread; what was kept can still be read."""
        self._server.close()

    # --- where it is ---

    @property
    def url(self) -> str:
        """For ``AWS_ENDPOINT_URL_CLOUDWATCH`` and ``AWS_ENDPOINT_URL_STS``; a page for people."""
        return f"http://127.0.0.1:{self._server.server_port}"

    # --- what it kept ---

    @property
    def accepted(self) -> list[StoredDatum]:
        """All data that were taken, in that order."""
        return self._store.data()

    @property
    def calls(self) -> list[Call]:
        """All requests to PutMetricData, faults among them."""
        return self._store.calls()

    def metrics(self) -> list[MetricId]:
        """Every metric that has stored data, sorted."""
        return self._store.metrics()

    def points(
        self,
        namespace: str,
        metric: str,
        dimensions: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        since_ms: int = 0,
    ) -> list[StoredPoint]:
        """The points of one metric in the order in which they were taken, none with a timestamp before ``since_ms``.

        A datum with several values is so many points; of a statistic set these are its minimum and its maximum.
        """
        data = self._store.data_of(MetricId(namespace, metric, sorted_dimensions(dimensions)))
        return [point for datum in data if datum.timestamp_ms >= since_ms for point in datum.points()]

    def as_json(self) -> dict[str, Any]:
        """What ``GET /points`` answers."""
        return all_points(self._store)

    def forget(self) -> None:
        """Forget data and calls; faults stay."""
        self._store.forget()

    # --- what it does wrong ---

    def script(self, *faults: Fault | None) -> None:
        """One for each of the next PutMetricData requests; None lets one pass."""
        self._handler.faults.add(*faults)

    def stand(self, fault: Fault) -> None:
        """For every PutMetricData request that finds the script empty, until `clear`."""
        self._handler.faults.stand(fault)

    def clear(self) -> None:
        """No fault stands or is scripted any more; no datum is poisonous."""
        self._handler.faults.clear()
        self._handler.poison.clear()

    def poison(self, *texts: str) -> None:
        """Refuse data with such a metric name or dimension value, for a reason that no document tells."""
        self._handler.poison.update(texts)
