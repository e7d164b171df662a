"""Accepts PutMetricData in place of Amazon CloudWatch, and lists the newest values."""

import threading
from collections.abc import Sequence

from msgspec import DecodeError, Struct, json

from karrot.demo.local_server import LocalAnswer

_JSON = "application/x-amz-json-1.0"


class _Dimension(Struct, rename="pascal"):
    name: str
    value: str


class _Datum(Struct, rename="pascal"):
    metric_name: str
    value: float
    dimensions: Sequence[_Dimension] = ()
    unit: str | None = None


class _PutMetricData(Struct, rename="pascal"):
    namespace: str
    metric_data: list[_Datum]


class CloudWatchReceiver:
    """Remembers the newest value of each metric. Several threads can use this class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, _Datum] = {}
        self._calls = 0

    def put(self, _path: str, body: bytes) -> LocalAnswer:
        """Accept a call of PutMetricData."""
        try:
            sent = json.decode(body, type=_PutMetricData)
        except DecodeError as error:
            return LocalAnswer(400, _JSON, json.encode({"__type": "SerializationException", "message": str(error)}))
        with self._lock:
            self._calls += 1
            for datum in sent.metric_data:
                dimensions = " ".join(f"{each.name}={each.value}" for each in datum.dimensions)
                self._newest[f"{sent.namespace} {datum.metric_name} {dimensions}"] = datum
        return LocalAnswer(200, _JSON, b"{}")

    def page(self, _path: str, _body: bytes = b"") -> LocalAnswer:
        """The page with the newest values."""
        with self._lock:
            lines = [f"{name}  {each.value:.12g} {each.unit or ''}" for name, each in sorted(self._newest.items())]
            head = f"This local fake of Amazon CloudWatch has accepted {self._calls} calls. The newest values:\n"
        return LocalAnswer(200, "text/plain; charset=utf-8", "\n".join([head, *lines, ""]).encode())
