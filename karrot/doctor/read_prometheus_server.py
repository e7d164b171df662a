"""Reads from Prometheus its configuration, its targets that belong to Karrot, its alert rules and its stored labels."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

import yaml
from msgspec import Struct

from karrot.burrow.client import Asking
from karrot.doctor.http_get import NotTold, Parts, Web
from karrot.doctor.read_evaluate import LAST_BATCH
from karrot.doctor.snapshot_types import Away, PrometheusSeen, Target, netloc

T = TypeVar("T")

_MOVED = ("exported_cluster", "exported_consumer", "exported_status", "exported_topic", "exported_partition")
_BEATS = (
    "karrot_last_event_timestamp_seconds",
    "karrot_watch_last_poll_timestamp_seconds",
    LAST_BATCH,
    'karrot_events_accepted_total{source="kafka"}',
)
_HAS = 'count({{__name__=~"karrot_.+",{}!=""}})'
_DOUBLED = "count(count by (cluster, consumer) (karrot_consumer_lag) > 1)"


class _Reply(Struct, Generic[T]):
    data: T


class _Result(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(Struct):
    result: list[_Result]


class _Scalar(Struct):
    result: tuple[float, str]


class _ActiveTargets(Struct, rename="camel"):
    active_targets: list[Target]


class _Yaml(Struct):
    yaml: str


def read_prometheus(url: str, asking: Asking, *, karrot_url: str | None = None) -> PrometheusSeen | Away:
    """Prometheus' state, or `Away` if nothing answers at the URL or if another program answers."""
    with closing(Web(url, asking=asking)) as web:
        return _read(web, karrot_url)


def _read(web: Web, karrot_url: str | None) -> PrometheusSeen | Away:
    try:
        now = web.read(_Reply[_Scalar], "/api/v1/query", {"query": "time()"}).data.result[0]
    except NotTold as error:
        return Away("Prometheus", web.url, error.said)
    parts = Parts()
    found = partial(_query, web)
    read_rules = partial(web.read, _Reply[dict[str, Any]], "/api/v1/rules", {"type": "alert"})
    read_targets = partial(web.read, _Reply[_ActiveTargets], "/api/v1/targets", {"state": "active"})
    told = parts.read("targets", read_targets, None)
    built = parts.read("karrot_build_info", lambda: found("karrot_build_info"), ())
    instances = {(each.metric.get("job", ""), each.metric.get("instance", "")) for each in built}
    targets = told.data.active_targets if told else []
    return PrometheusSeen(
        url=web.url,
        now=datetime.fromtimestamp(now, UTC),
        targets=[each for each in targets if _is_karrots(each, instances, karrot_url)],
        config=parts.read("configuration", partial(_config, web), {}),
        exported=[label for label in _MOVED if parts.read(label, partial(_query, web, _HAS.format(label)), ())],
        series=_first(parts.read("groups", lambda: found("count(karrot_consumer_lag)"), ())),
        doubled=_first(parts.read("groups", lambda: found(_DOUBLED), ())),
        beats=[name for name in _BEATS if parts.read(name, partial(found, f"count({name} > 0)"), ())],
        rules=parts.read("rules", lambda: str(read_rules().data), None),
        unread=tuple(parts.unread),
    )


def _query(web: Web, expression: str) -> list[_Result]:
    return web.read(_Reply[_Vector], "/api/v1/query", {"query": expression}).data.result


def _first(results: Sequence[_Result]) -> int:
    return int(float(results[0].value[1])) if results else 0


def _config(web: Web) -> Mapping[str, Any]:
    text = web.read(_Reply[_Yaml], "/api/v1/status/config").data.yaml
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise NotTold(f"Prometheus returned a configuration that is not valid YAML: {error}") from error
    return config if isinstance(config, dict) else {}


def _is_karrots(target: Target, instances: set[tuple[str, str]], karrot_url: str | None) -> bool:
    job, instance = target.labels.get("job", ""), target.labels.get("instance", "")
    if (job, instance) in instances or "karrot" in f"{job} {target.scrape_url}".lower():
        return True
    return karrot_url is not None and netloc(target.scrape_url) == netloc(karrot_url)
