"""Reads Burrow's configuration, its lists of clusters, topics and groups, some verdicts, and its notifiers' URLs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from karrot.burrow.client import (
    Asking,
    Burrow,
    BurrowError,
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotFound,
    NotifierModule,
    StorageModule,
    Unaddressable,
    UnknownCall,
)
from karrot.doctor.http_get import NotTold, Parts, Web
from karrot.doctor.snapshot_types import Away, BurrowSeen, ReadWebhook, is_for_karrot
from karrot.event import LagEvent, has_burrow_name

T = TypeVar("T")

GROUPS_ASKED = 50
"""The maximum number of verdicts read per cluster. Burrow evaluates a group again for each request."""

_KARROTS_ANSWER = b'"code":"method_not_allowed"'
_NOT_ALLOWED = 405


def read_burrow(url: str, asking: Asking, *, karrot_url: str | None = None) -> BurrowSeen | Away:
    """Burrow's configuration, lists and verdicts, or `Away` if Burrow does not answer. Changes nothing in Burrow."""
    with Burrow(url, asking=asking) as burrow:
        return _read(burrow, asking, karrot_url)


def _read(burrow: Burrow, asking: Asking, karrot_url: str | None) -> BurrowSeen | Away:
    try:
        listed = burrow.clusters()
    except BurrowError as error:
        return Away("Burrow", burrow.url, error.said)
    parts = Parts()
    groups = _told({each: parts.read(f"groups of {each}", partial(burrow.consumers, each), None) for each in listed})
    topics = _told({each: parts.read(f"topics of {each}", partial(burrow.topics, each), None) for each in listed})
    main = parts.read("general configuration", burrow.config_main, None)
    notifiers = _modules(parts, burrow, "notifier", NotifierModule)
    return BurrowSeen(
        url=burrow.url,
        ready=parts.read("readiness", partial(_ready, burrow), None),
        zookeeper=main.zookeeper if main else None,
        clusters=_modules(parts, burrow, "cluster", ClusterModule),
        consumers=_modules(parts, burrow, "consumer", ConsumerModule),
        storages=_modules(parts, burrow, "storage", StorageModule),
        evaluators=_modules(parts, burrow, "evaluator", EvaluatorModule),
        notifiers=notifiers,
        listed=listed,
        groups=groups,
        topics={cluster: len(names) for cluster, names in topics.items()},
        verdicts=parts.read("verdicts on groups", partial(_verdicts, burrow, groups), ()),
        webhooks=_webhooks(notifiers, asking, karrot_url),
        karrot_url=karrot_url,
        unread=tuple(parts.unread),
    )


def _ready(burrow: Burrow) -> bool | None:
    try:
        return burrow.ready()
    except UnknownCall:
        return None  # Burrow before v1.3.5 does not report whether it is ready


def _modules(parts: Parts, burrow: Burrow, coordinator: str, kind: type[T]) -> dict[str, T]:
    told = parts.read(f"{coordinator} modules", partial(burrow.modules, coordinator), ())
    read = partial(burrow.module, kind, coordinator)
    return _told({name: parts.read(f"[{coordinator}.{name}]", partial(read, name), None) for name in told})


def _told(found: Mapping[str, T | None]) -> dict[str, T]:
    return {name: each for name, each in found.items() if each is not None}


def _verdicts(burrow: Burrow, groups: Mapping[str, Sequence[str]]) -> tuple[LagEvent, ...]:
    """Verdicts with all partitions, first on Burrow's own groups, then on other groups. One request runs at a time.

    A group is left out if it was deleted, or if its name does not fit into a path of the REST API.
    """
    some = {
        cluster: sorted(names, key=lambda name: not has_burrow_name(name))[:GROUPS_ASKED]
        for cluster, names in groups.items()
    }
    found: list[LagEvent] = []
    for cluster, names in some.items():
        for group in names:
            with suppress(NotFound, Unaddressable):
                found.append(burrow.lag(cluster, group))
    return tuple(found)


def _webhooks(
    notifiers: Mapping[str, NotifierModule], asking: Asking, karrot_url: str | None
) -> dict[str, ReadWebhook]:
    """The answers of the URLs that Karrot's notifiers post to. No request goes to the URLs of other notifiers."""
    meant = [each for name, each in notifiers.items() if is_for_karrot(name, each, karrot_url)]
    urls = {url for each in meant for url in (each.url_open, each.url_close) if url}
    return {url: _webhook(url, asking) for url in sorted(urls) if "{{" not in url}


def _webhook(url: str, asking: Asking) -> ReadWebhook:
    """The answer to a GET, which stores nothing. Karrot answers it with 405."""
    web = Web(url, asking=asking)
    try:
        answer = web.answer()
    except NotTold as error:
        return ReadWebhook(0, error.said, is_karrot=False)
    finally:
        web.close()
    is_karrot = answer.status == _NOT_ALLOWED and _KARROTS_ANSWER in answer.body
    return ReadWebhook(answer.status, answer.location, is_karrot)
