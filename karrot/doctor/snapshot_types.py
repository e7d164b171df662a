"""Holds what was read of Burrow, Karrot and Prometheus. It is frozen; the checks judge by nothing else."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from karrot.burrow.client import (
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotifierModule,
    StorageModule,
    ZooKeeperConfig,
)
from karrot.event import GroupKey, LagEvent

WEBHOOK_PATH = "/burrow"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Away(NamedTuple):
    """A side that did not answer, or not as it should; ``said`` says how it failed."""

    side: str
    url: str
    said: str


class Unread(NamedTuple):
    """A part of a side that could not be read."""

    what: str
    said: str


class ReadWebhook(NamedTuple):
    """The answer to a GET of a notifier's URL. ``status`` is 0 if there was none; ``said`` says why."""

    status: int
    said: str
    is_karrot: bool


def netloc(url: str) -> str:
    """Host and port of an address, for comparison."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return parts.netloc
    return f"{parts.hostname or ''}:{port}"


def is_for_karrot(name: str, notifier: NotifierModule, karrot_url: str | None) -> bool:
    """Whether a notifier is meant for Karrot: by the end of its URL, by its host, or by the word."""
    url = notifier.url_open or ""
    if notifier.class_name != "http":
        return False
    ends = urlsplit(url).path.rstrip("/").endswith(WEBHOOK_PATH)
    is_there = karrot_url is not None and netloc(url) == netloc(karrot_url)
    return ends or is_there or "karrot" in f"{name} {url}".lower()


def seconds(text: str) -> float:
    """A span of time as Karrot (``300s``) and Prometheus (``1m30s``) show it; 0 for anything else."""
    parts = re.findall(r"([0-9]+)(ms|[smhd])", text)
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurrowSeen:
    """Burrow's configuration as far as it shows it, its lists, and the verdicts on some of its groups.

    ``ready`` is ``None`` where Burrow is too old to say. ``listed`` are the clusters of its storage; ``groups`` and
    ``topics``, the number of them, leave out a cluster whose list was not told. ``karrot_url`` is where Karrot was
    said to be.
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
        """The notifiers that are meant for Karrot."""
        return {name: each for name, each in self.notifiers.items() if is_for_karrot(name, each, self.karrot_url)}

    def has_read(self, *coordinators: str) -> bool:
        """Whether the configuration of each module of this kind was read."""
        marks = tuple(f"[{each}." for each in coordinators)
        lists = {f"{each} modules" for each in coordinators}
        return not any(each.what.startswith(marks) or each.what in lists for each in self.unread)

    @property
    def interval(self) -> int:
        """Seconds between evaluations: the smallest of all notifiers holds; Burrow's default if there is none."""
        return min((each.interval for each in self.notifiers.values()), default=60)


class ReadComponent(Struct, frozen=True):
    """One part of Karrot at ``/readyz``."""

    state: str
    detail: str | None = None


class Reporter(Struct, frozen=True):
    """One reporter at ``/api/v1/reporters``."""

    name: str
    state: str
    backlog_events: int | None = None
    backlog_age_seconds: float | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None


class ReadGroup(Struct, frozen=True):
    """One group at ``/api/v1/groups``."""

    cluster: str
    consumer: str
    status: str
    lag: int | None
    source: str
    last_event_at: datetime | None


class ReadGroupEvent(Struct, frozen=True):
    """One event of a group's history at ``/api/v1/group``."""

    received_at: datetime | None
    source: str
    incident_id: str | None = None


class ReadReject(Struct, frozen=True):
    """One refused body at ``/api/v1/rejects``."""

    received_at: datetime | None
    code: str
    detail: str


class ReadSample(NamedTuple):
    """One sample of ``/metrics``."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KarrotSeen:
    """What Karrot says about itself. ``now`` is by its own clock.

    ``settings``, ``reporters``, ``groups`` and ``rejects`` are ``None`` where they could not be read;
    ``has_all_groups`` is false where there were too many. ``histories`` has the newest events of some groups, newest
    first.
    """

    url: str
    now: datetime
    components: Mapping[str, ReadComponent] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None
    reporters: Sequence[Reporter] | None = None
    groups: Sequence[ReadGroup] | None = None
    has_all_groups: bool = True
    rejects: Sequence[ReadReject] | None = None
    histories: Mapping[GroupKey, Sequence[ReadGroupEvent]] = field(default_factory=dict)
    samples: Sequence[ReadSample] = ()
    unread: Sequence[Unread] = ()

    def setting(self, name: str) -> str:
        """A setting as text, empty if it is not set or was not read."""
        return (self.settings or {}).get(f"KARROT_{name}", "")

    @property
    def stale_after(self) -> float:
        """Seconds; Karrot's default where its settings were not read."""
        return seconds(self.setting("STALE_AFTER")) or 300

    def of(self, metric: str) -> Iterator[ReadSample]:
        """The samples of a metric."""
        return (sample for sample in self.samples if sample.name == metric)

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(sample.value for sample in self.of(metric) if labels.items() <= sample.labels.items())

    @property
    def heard(self) -> dict[str, float]:
        """Seconds since the last webhook of each cluster's Burrow; infinite if there was none."""
        now = self.now.timestamp()
        return {
            sample.labels.get("cluster", ""): max(0.0, now - sample.value) if sample.value else float("inf")
            for sample in self.of("karrot_last_event_timestamp_seconds")
        }

    def age(self, when: datetime | None) -> float:
        """Seconds since a moment, infinite for one that is not known."""
        return float("inf") if when is None else max(0.0, (self.now - when).total_seconds())


class Target(Struct, frozen=True, rename="camel"):
    """One target at Prometheus' ``/api/v1/targets``."""

    scrape_url: str
    health: str
    labels: dict[str, str]
    scrape_pool: str = ""
    last_error: str = ""
    last_scrape: datetime | None = None
    last_scrape_duration: float = 0.0
    scrape_interval: str = ""
    scrape_timeout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSeen:
    """What Prometheus says about Karrot. ``now`` is by its own clock, ``targets`` are those that are Karrot's.

    ``exported`` are the labels that it moved aside, ``doubled`` the number of groups with more than one sample of
    ``karrot_consumer_lag``, ``series`` the number of those samples; ``rules`` all alert rules as one text, or ``None``.
    """

    url: str
    now: datetime
    targets: Sequence[Target] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    exported: Sequence[str] = ()
    series: int = 0
    doubled: int = 0
    rules: str | None = None
    unread: Sequence[Unread] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Each side as it was read, ``None`` if it was not asked for."""

    burrow: BurrowSeen | Away | None = None
    karrot: KarrotSeen | Away | None = None
    prometheus: PrometheusSeen | Away | None = None
