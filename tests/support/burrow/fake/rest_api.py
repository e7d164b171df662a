"""Serves the fake Burrow's REST API v3, with the same answers as Burrow v1.9.5 (``core/internal/httpserver``).

The JSON is the same as the JSON of Burrow, which is written in Go: the same keys in the same order, lists in random
order, and partitions grouped by topic in random order of topics. An unknown name gives 404. A verdict NOTFOUND also
gives 404, but with ``error`` false.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Raw, json

from karrot.burrow.payload import result_to_wire
from karrot.burrow.rules import TrackedPartition, current_lag
from karrot.clock import Clock
from karrot.event import LagEvent, Source, Status
from support.burrow.burrow_storage import Storage
from support.burrow.fake.fake_burrow import FakeBurrow, as_go_writes
from support.burrow.viper_config import EXAMPLE, BurrowConfig, configured

T = TypeVar("T")

_JSON, _TEXT, _HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"
_NO_CALL = b'{"error":true,"message":"invalid request type","result":{}}\n'
_HOST = "fake-burrow"

_REQUESTS_KEPT = 1000
"""The server keeps only the newest requests."""

_SNIFFED = 2048
"""Go sends Content-Length for a body that fits into its buffer of this many bytes, and chunks for a longer body."""


class RestAnswer(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes
    location: str = ""


class _Unknown(Exception):  # noqa: N818 (the name describes what was requested)
    """A name is unknown. The text is the message of the answer 404."""


class RestApi:
    """Makes the REST answers of a fake Burrow. Several threads can use this class.

    The API shows ``configuration``, but the verdicts follow the fake Burrow's own settings.
    """

    def __init__(
        self, burrow: FakeBurrow, clock: Clock, random: Random, *, configuration: BurrowConfig | None = None
    ) -> None:
        self._burrow = burrow
        self._clock = clock
        self._random = random
        self._configuration = configuration or configured(EXAMPLE)
        self.started_s: float | None = None

    def answer(self, target: str) -> RestAnswer:
        """The answer to a GET request."""
        match unquote(urlsplit(target).path):
            case "/burrow/admin":
                return RestAnswer(200, _TEXT, b"GOOD")
            case "/burrow/admin/ready":
                return RestAnswer(200, _TEXT, b"READY")
            case "/metrics" if self.started_s is not None:
                return RestAnswer(200, _TEXT, f"process_start_time_seconds {self.started_s}\n".encode())
            case path:
                return self._v3(path)

    def _v3(self, path: str) -> RestAnswer:
        for pattern, call in self._questions():
            if (names := _matched(pattern, path)) is not None:
                return _called(call, path, names)
        if path.endswith("/") and self._v3(path[:-1]).status != _NOT_FOUND:
            return RestAnswer(301, _HTML, b"", path[:-1])
        return RestAnswer(404, _TEXT, _NO_CALL)

    def _questions(self) -> "tuple[tuple[str, _Call], ...]":
        configured = self._configuration.modules
        return (
            ("/v3/kafka", self._clusters),
            ("/v3/kafka/:", partial(self._module, coordinator="cluster")),
            ("/v3/kafka/:/topic", self._topics),
            ("/v3/kafka/:/topic/:", self._log_ends),
            ("/v3/kafka/:/consumer", self._groups),
            ("/v3/kafka/:/consumer/:", self._detail),
            ("/v3/kafka/:/consumer/:/status", self._status),
            ("/v3/kafka/:/consumer/:/lag", lambda cluster, group: _verdict_said(self._verdict(cluster, group))),
            ("/v3/config", lambda: _said("main config returned", request=None, **self._configuration.main)),
            *((f"/v3/config/{each}", partial(self._modules, coordinator=each)) for each in configured),
            *((f"/v3/config/{each}/:", partial(self._module, coordinator=each)) for each in configured),
        )

    # --- what Burrow stores ---

    def _clusters(self) -> "_Said":
        with self._burrow.at(self._clock.wall_ms()) as storages:
            return _said("cluster list returned", clusters=self._shuffled(storages))

    def _topics(self, cluster: str) -> "_Said":
        topics = self._of(cluster, lambda storage: self._shuffled(storage.topics()), "cluster not found")
        return _said("topic list returned", topics=topics)

    def _log_ends(self, cluster: str, topic: str) -> "_Said":
        ends = self._of(cluster, lambda storage: storage.log_ends(topic), "cluster or topic not found")
        return _said("topic offsets returned", offsets=ends)

    def _groups(self, cluster: str) -> "_Said":
        groups = self._of(cluster, lambda storage: self._shuffled(storage.groups()), "cluster not found")
        return _said("consumer list returned", consumers=groups)

    def _detail(self, cluster: str, group: str) -> "_Said":
        now = self._clock.wall_ms() // 1000
        partitions = self._of(cluster, lambda storage: storage.fetch(group, now), "cluster or consumer not found")
        topics: dict[str, list[dict[str, Any]]] = {}
        for tracked in sorted(partitions, key=lambda each: (each.topic, each.partition)):
            topics.setdefault(tracked.topic, []).append(_stored(tracked))
        return _said("consumer detail returned", topics=topics)

    def _status(self, cluster: str, group: str) -> "_Said":
        verdict = self._verdict(cluster, group)
        bad = tuple([lag for lag in verdict.partitions if lag.status_text != Status.OK.name])
        return _verdict_said(verdict._replace(partitions=bad))

    def _of(self, cluster: str, read: Callable[[Storage], T | None], unknown: str) -> T:
        with self._burrow.at(self._clock.wall_ms()) as storages:
            found = read(storages[cluster]) if cluster in storages else None
        if found is None:
            raise _Unknown(unknown)
        return found

    def _verdict(self, cluster: str, group: str) -> LagEvent:
        now_ms = self._clock.wall_ms()
        verdict = self._burrow.verdict(cluster, group, now_ms)
        if verdict is None:
            return LagEvent(cluster, group, "NOTFOUND", 0, now_ms, Source.REST, complete=1.0, partition_count=0)
        topics = self._shuffled({lag.topic for lag in verdict.partitions})
        return verdict._replace(partitions=tuple(sorted(verdict.partitions, key=lambda lag: topics.index(lag.topic))))

    def _shuffled(self, names: Iterable[str]) -> list[str]:
        listed = sorted(names)
        return self._random.sample(listed, len(listed))

    # --- how it is configured ---

    def _modules(self, *, coordinator: str) -> "_Said":
        modules = self._shuffled(self._configuration.modules[coordinator])
        return _said("module list returned", request=None, coordinator=coordinator, modules=modules)

    def _module(self, name: str, *, coordinator: str) -> "_Said":
        module = self._configuration.modules[coordinator].get(name.lower())
        if module is None:
            raise _Unknown(f"{coordinator} module not found")
        return _said(f"{coordinator} module detail returned", module=module)


_Said = tuple[int, dict[str, Any]]
_Call = Callable[..., _Said]
_NOT_FOUND = 404


def _called(call: _Call, path: str, names: Sequence[str]) -> RestAnswer:
    request = {"url": path, "host": _HOST}
    try:
        status, said = call(*names)
    except _Unknown as unknown:
        return RestAnswer(404, _JSON, _go_json({"error": True, "message": str(unknown), "request": request}))
    # The key ``request`` comes last. Only two answers about the configuration already have this key, in another place.
    return RestAnswer(status, _JSON, _go_json({"error": False, **said, "request": request}))


def _go_json(value: Any) -> bytes:
    """JSON as Go's ``encoding/json`` writes it: compact, in the order of the fields."""
    return as_go_writes(json.encode(value))


def _matched(pattern: str, path: str) -> list[str] | None:
    """The names in a decoded path. ``None`` if the path does not match. A name at the end must not be empty."""
    parts, names = pattern.split("/"), path.split("/")
    if len(parts) != len(names) or not names[-1]:
        return None
    pairs = list(zip(parts, names, strict=True))
    return [name for part, name in pairs if part == ":"] if all(part in (":", name) for part, name in pairs) else None


def _said(message: str, **more: Any) -> _Said:
    return 200, {"message": message, **more}


def _verdict_said(verdict: LagEvent) -> _Said:
    status = _NOT_FOUND if verdict.status is Status.NOTFOUND else 200
    return status, {"message": "consumer status returned", "status": Raw(result_to_wire(verdict))}


def _stored(tracked: TrackedPartition) -> dict[str, Any]:
    """One partition in the answer of ``/consumer/G``. No other answer writes the key as ``current-lag``."""
    return {
        "offsets": tracked.slots,
        "owner": tracked.owner,
        "client_id": tracked.client_id,
        "current-lag": current_lag(tracked.slots, tracked.broker_offsets),
    }


class BurrowServer:
    """The HTTP server of the fake REST API, on a free port of loopback. Use it in a ``with`` block."""

    def __init__(self, api: RestApi) -> None:
        self._server = _Server(api)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-burrow-rest")
        self.api = api
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def asked(self) -> list[str]:
        """The newest requests, oldest first, such as ``GET /v3/kafka``."""
        return list(self._server.asked)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a client that outlives the test may keep connections open
    request_queue_size = 128

    def __init__(self, api: RestApi) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.asked: deque[str] = deque(maxlen=_REQUESTS_KEPT)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True
    server: _Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing: requests are recorded."""

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self._send(self.server.api.answer(self.path))

    def _send(self, answer: RestAnswer) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        if answer.location:
            self.send_header("Location", answer.location)
        if answer.status == 404 and answer.content_type != "application/json":
            self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Date", formatdate(usegmt=True))
        body = answer.body
        if len(body) > _SNIFFED:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
