"""Answers the calls of Burrow's REST API v3 that Karrot's commands make."""

from typing import Any, Final

from msgspec import Raw, json

from karrot.burrow.payload import result_to_wire
from karrot.clock import Clock
from karrot.demo.local_server import LocalAnswer
from karrot.demo.simulated_burrow import CLUSTERS, TIMEOUT_S, SimulatedBurrow
from karrot.event import GroupKey

_PROFILE: Final = {"name": "karrot", "client-id": "burrow", "kafka-version": "3.6.0"}
_KAFKA: Final = {"class-name": "kafka", "servers": ["kafka:9092"], "client-profile": _PROFILE}


class BurrowApi:
    """The API of a simulated Burrow whose notifier posts to ``karrot_url``. Several threads can use this class."""

    def __init__(self, burrow: SimulatedBurrow, clock: Clock, karrot_url: str) -> None:
        self._burrow = burrow
        self._clock = clock
        url, template, interval_s = f"{karrot_url}/burrow", "karrot.tmpl", round(burrow.interval_s)
        notifier = {"class-name": "http", "interval": interval_s, "threshold": 1, "timeout": TIMEOUT_S, "noverify": ""}
        opening = {"url-open": url, "method-open": "POST", "template-open": template, "group-allowlist": ""}
        closing = {"url-close": url, "method-close": "POST", "template-close": template, "send-close": True}
        self._modules: dict[str, dict[str, dict[str, Any]]] = {
            "cluster": {name: _KAFKA | {"topic-refresh": 60, "offset-refresh": 1} for name in CLUSTERS},
            "consumer": {name: _KAFKA | {"cluster": name, "start-latest": False} for name in CLUSTERS},
            "storage": {"default": {"class-name": "inmemory", "intervals": 10, "expire-group": 604_800}},
            "evaluator": {"default": {"class-name": "caching", "expire-cache": 0}},
            "notifier": {"karrot": notifier | opening | closing | {"extra": {}}},
        }

    def answer(self, path: str, _body: bytes = b"") -> LocalAnswer:  # noqa: PLR0911 (one for each call)
        """The answer to a GET request."""
        match path.rstrip("/").split("/")[1:]:
            case ["burrow", "admin"]:
                return LocalAnswer(200, "text/plain", b"GOOD")
            case ["burrow", "admin", "ready"]:
                return LocalAnswer(200, "text/plain", b"READY")
            case ["v3", "kafka"]:
                return _said("cluster list returned", clusters=CLUSTERS)
            case ["v3", "kafka", cluster, "topic"] if cluster in CLUSTERS:
                return self._topics(cluster)
            case ["v3", "kafka", cluster, "consumer"] if cluster in CLUSTERS:
                return self._consumers(cluster)
            case ["v3", "kafka", cluster, "consumer", group, ("status" | "lag") as kind]:
                return self._verdict(GroupKey(cluster, group), show_all=kind == "lag")
            case ["v3", "config"]:
                return _said("main config returned", zookeeper={"servers": ["zookeeper:2181"]})
            case ["v3", "config", coordinator] if coordinator in self._modules:
                return _said("module list returned", modules=list(self._modules[coordinator]))
            case ["v3", "config", coordinator, name] if name in self._modules.get(coordinator, ()):
                return _said(f"{coordinator} module detail returned", module=self._modules[coordinator][name])
            case _:
                return LocalAnswer(404, "application/json", b'{"error":true,"message":"not found","request":{}}')

    def _topics(self, cluster: str) -> LocalAnswer:
        found = (group.topics for key, group in self._burrow.groups.items() if key.cluster == cluster)
        return _said("topic list returned", topics=[topic for topics in found for topic in topics])

    def _consumers(self, cluster: str) -> LocalAnswer:
        now_ms = self._clock.wall_ms()
        keys = [key for key in self._burrow.groups if key.cluster == cluster and self._burrow.verdict(key, now_ms)]
        return _said("consumer list returned", consumers=[key.consumer for key in keys])

    def _verdict(self, key: GroupKey, *, show_all: bool) -> LocalAnswer:
        verdict = self._burrow.verdict(key, self._clock.wall_ms(), show_all=show_all)
        if verdict is None:
            return LocalAnswer(404, "application/json", b'{"error":true,"message":"cluster or consumer not found"}')
        return _said("consumer status returned", status=Raw(result_to_wire(verdict)))


def _said(message: str, **more: Any) -> LocalAnswer:
    return LocalAnswer(200, "application/json", json.encode({"error": False, "message": message, **more}))
