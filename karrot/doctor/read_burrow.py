"""Reads Burrow's configuration, its lists of clusters, topics and groups, some verdicts, and its notifiers' targets."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from karrot.burrow.client import (
    Burrow,
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotFound,
    NotifierModule,
    StorageModule,
    Unaddressable,
    ZooKeeperConfig,
)
from karrot.doctor.reader_helpers import Parts, Unread, netloc
from karrot.event import LagEvent, has_burrow_name
from karrot.http_client import HttpClient, Limits, RequestFailed
from karrot.text import redacted

T = TypeVar("T")

WEBHOOK_PATH = "/burrow"
GROUPS_ASKED = 50
"""The maximum number of verdicts read per cluster. Burrow evaluates a group again for each request."""

_KARROTS_ANSWER = b'"code":"method_not_allowed"'
_NOT_ALLOWED = 405


class ReadWebhook(NamedTuple):
    """The answer to a GET of a notifier's URL. ``status`` is 0 without an answer.

    ``detail`` is the address of a redirect, or the error if there is no answer.
    """

    status: int
    detail: str
    is_karrot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BurrowSeen:
    """The visible part of Burrow's configuration, Burrow's lists, and the verdicts on some of its groups.

    ``ready`` is ``None`` if Burrow is too old to report readiness. ``listed`` are the clusters of Burrow's storage.
    ``groups`` maps a cluster to its groups' names, and ``topics`` to its number of topics. Clusters whose lists could
    not be read are left out. ``karrot_url`` is the URL given with ``--karrot``.
    """

    url: str
    ready: bool | None = True
    zookeeper: ZooKeeperConfig | None = None
    clusters: Mapping[str, ClusterModule] = field(default_factory=dict)
    consumers: Mapping[str, ConsumerModule] = field(default_factory=dict)
    storages: Mapping[str, StorageModule] = field(default_factory=dict)
    evaluators: Mapping[str, EvaluatorModule] = field(default_factory=dict)
    notifiers: Mapping[str, NotifierModule] = field(default_factory=dict)
    listed: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    verdicts: Sequence[LagEvent] = ()
    webhooks: Mapping[str, ReadWebhook] = field(default_factory=dict)
    karrot_url: str | None = None
    unread: Sequence[Unread] = ()

    @property
    def to_karrot(self) -> dict[str, NotifierModule]:
        """The notifiers that post to Karrot, by name."""
        return {name: each for name, each in self.notifiers.items() if is_for_karrot(name, each, self.karrot_url)}

    def has_read(self, *coordinators: str) -> bool:
        """Whether the configuration of every module of the given kinds was read."""
        marks = tuple(f"[{each}." for each in coordinators)
        lists = {f"{each} modules" for each in coordinators}
        return not any(each.what.startswith(marks) or each.what in lists for each in self.unread)

    @property
    def interval(self) -> int:
        """Seconds between evaluations: the smallest interval of all notifiers; without notifiers, Burrow's default."""
        return min((each.interval for each in self.notifiers.values()), default=60)


def read_burrow(url: str, limits: Limits, *, karrot_url: str | None = None) -> BurrowSeen:
    """Read Burrow's configuration, lists and verdicts, and change nothing. Raises `RequestFailed` without an answer."""
    with Burrow(url, limits) as burrow:
        listed, parts = burrow.clusters(), Parts()
        groups = _known(
            {each: parts.read(f"groups of {each}", partial(burrow.consumers, each), None) for each in listed}
        )
        topics = _known({each: parts.read(f"topics of {each}", partial(burrow.topics, each), None) for each in listed})
        main = parts.read("general configuration", burrow.config_main, None)
        notifiers = _modules(parts, burrow, "notifier", NotifierModule)
        return BurrowSeen(
            url=burrow.url,
            ready=parts.read("readiness", burrow.ready, None),
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
            webhooks=_webhooks(notifiers, limits, karrot_url),
            karrot_url=karrot_url,
            unread=tuple(parts.unread),
        )


def is_for_karrot(name: str, notifier: NotifierModule, karrot_url: str | None) -> bool:
    """Whether a notifier is for Karrot.

    A notifier for Karrot uses HTTP. Its URL ends with Karrot's path or has Karrot's host and port, or the URL or name
    contains ``karrot``.
    """
    url = notifier.url_open or ""
    if notifier.class_name != "http":
        return False
    ends = urlsplit(url).path.rstrip("/").endswith(WEBHOOK_PATH)
    is_there = karrot_url is not None and netloc(url) == netloc(karrot_url)
    return ends or is_there or "karrot" in f"{name} {url}".lower()


def admits(notifier: NotifierModule, group: str) -> bool | None:
    """Whether a notifier's allowlist admits a group. ``None`` if Python cannot read the pattern."""
    try:
        return bool(re.search(notifier.group_allowlist or notifier.group_whitelist or "", group))
    except re.error:
        return None


def _modules(parts: Parts, burrow: Burrow, coordinator: str, kind: type[T]) -> dict[str, T]:
    names = parts.read(f"{coordinator} modules", partial(burrow.modules, coordinator), ())
    read = partial(burrow.module, kind, coordinator)
    return _known({name: parts.read(f"[{coordinator}.{name}]", partial(read, name), None) for name in names})


def _known(found: Mapping[str, T | None]) -> dict[str, T]:
    return {name: each for name, each in found.items() if each is not None}


def _verdicts(burrow: Burrow, groups: Mapping[str, Sequence[str]]) -> tuple[LagEvent, ...]:
    """Read verdicts with all partitions, first on Burrow's own groups, then on other groups, one request at a time.

    Deleted groups, and groups whose name does not fit into a path of the REST API, are left out.
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
    notifiers: Mapping[str, NotifierModule], limits: Limits, karrot_url: str | None
) -> dict[str, ReadWebhook]:
    """Request the URLs of Burrow's notifiers that post to Karrot. No request goes to the URLs of other notifiers."""
    meant = [each for name, each in notifiers.items() if is_for_karrot(name, each, karrot_url)]
    urls = {url for each in meant for url in (each.url_open, each.url_close) if url}
    return {url: _webhook(url, limits) for url in sorted(urls) if "{{" not in url}


def _webhook(url: str, limits: Limits) -> ReadWebhook:
    """Return the answer to a GET, which stores nothing. Karrot answers a GET with 405."""
    try:
        with HttpClient(url, limits) as client:
            answer = client.get()
    except RequestFailed as error:
        return ReadWebhook(0, error.said, is_karrot=False)
    is_karrot = answer.status == _NOT_ALLOWED and _KARROTS_ANSWER in answer.body
    return ReadWebhook(answer.status, redacted(answer.location), is_karrot)
