"""Defines the snapshot: frozen values from the programs that the doctor reads. The checks read only the snapshot."""

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
    """A program that did not answer or answered wrongly. ``said`` is the error message."""

    side: str
    url: str
    said: str


class Unread(NamedTuple):
    """A part of a program's data that could not be read. ``said`` is the error message."""

    what: str
    said: str


class ReadWebhook(NamedTuple):
    """The answer to a GET of a notifier's URL. Without answer, ``status`` is 0 and ``said`` is the error message."""

    status: int
    said: str
    is_karrot: bool


def netloc(url: str) -> str:
    """The host and port of a URL, for comparison."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return parts.netloc
    return f"{parts.hostname or ''}:{port}"


def is_for_karrot(name: str, notifier: NotifierModule, karrot_url: str | None) -> bool:
    """Whether a notifier is for Karrot.

    It must use HTTP. Its URL must end with Karrot's path, or have Karrot's host and port, or its name or its URL must
    contain ``karrot``.
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


def seconds(text: str) -> float:
    """The seconds of a duration as Karrot (``300s``) or Prometheus (``1m30s``) shows it; 0 for any other text."""
    parts = re.findall(r"([0-9]+)(ms|[smhd])", text)
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurrowSeen:
    """The visible part of Burrow's configuration, Burrow's lists, and the verdicts on some of its groups.

    ``ready`` is ``None`` if Burrow is too old to report it. ``listed`` are the clusters of Burrow's storage. ``groups``
    has the names of groups by cluster, ``topics`` the number of topics by cluster. Both leave out clusters whose lists
    could not be read. ``karrot_url`` is the URL given with ``--karrot``.
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
        """The notifiers that are for Karrot."""
        return {name: each for name, each in self.notifiers.items() if is_for_karrot(name, each, self.karrot_url)}

    def has_read(self, *coordinators: str) -> bool:
        """Whether the configurations of all modules of these kinds were read."""
        marks = tuple(f"[{each}." for each in coordinators)
        lists = {f"{each} modules" for each in coordinators}
        return not any(each.what.startswith(marks) or each.what in lists for each in self.unread)

    @property
    def interval(self) -> int:
        """Seconds between evaluations: the smallest interval of all notifiers, or Burrow's default if there is none."""
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


class ReadStandby(Struct, frozen=True):
    """One standby of the database server at ``/api/v1/event-log``."""

    name: str
    sync_state: str
    lag_bytes: int
    lag_seconds: float


class ReadServer(Struct, frozen=True):
    """The database server at ``/api/v1/event-log``. ``standbys`` is ``None`` if Karrot's role may not see them."""

    host: str
    version: str
    encrypted: bool
    synchronous_commit: str
    synchronous_standby_names: str
    connections: int
    max_connections: int
    standbys: tuple[ReadStandby, ...] | None


class ReadEventLog(Struct, frozen=True):
    """The event log at ``/api/v1/event-log``, as one replica sees it. SQLite has no ``replica`` and no ``database``."""

    log_id: str
    replica: str | None = None
    leader: str | None = None
    fault: str | None = None
    memory_age_seconds: float | None = None
    database: ReadServer | None = None


class ReadSample(NamedTuple):
    """One sample of ``/metrics``."""

    name: str
    labels: Mapping[str, str]
    value: float


class RecipeInput(Struct, frozen=True):
    """What a scaling recipe needs from CloudWatch, as ``karrot render ecs-autoscaling`` wrote it into the output."""

    namespace: str
    cluster: str
    group: str
    metrics: tuple[str, ...]
    resolution: int
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KarrotSeen:
    """Karrot's state as its routes show it. ``now`` is the time on Karrot's machine.

    ``settings``, ``reporters``, ``groups`` and ``rejects`` are ``None`` if they could not be read.
    ``has_all_groups`` is false if there were too many to read. ``histories`` has the newest events of some groups,
    newest first. ``recipes`` are the scaling recipes that read Karrot's metrics. ``event_log`` is ``None`` for an older
    Karrot. ``replicas`` are the event logs of further replicas, by the URL of the replica. ``has_evaluate`` is true if
    the URL of ``karrot pipeline evaluate`` was given. Karrot then needs no Burrow.
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
    recipes: Sequence[RecipeInput] = ()
    event_log: ReadEventLog | None = None
    replicas: Mapping[str, ReadEventLog] = field(default_factory=dict)
    has_evaluate: bool = False
    unread: Sequence[Unread] = ()

    def setting(self, name: str) -> str:
        """A setting as text; empty if it is not set or was not read."""
        return (self.settings or {}).get(f"KARROT_{name}", "")

    @property
    def stale_after(self) -> float:
        """``KARROT_STALE_AFTER`` in seconds, or its default if the settings were not read."""
        return seconds(self.setting("STALE_AFTER")) or 300

    def of(self, metric: str) -> Iterator[ReadSample]:
        """The samples of a metric."""
        return (sample for sample in self.samples if sample.name == metric)

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(sample.value for sample in self.of(metric) if labels.items() <= sample.labels.items())

    @property
    def unless_refused(self) -> str:
        """How the remedy for a missing event begins if Karrot refused requests. Otherwise empty."""
        any_refused = self.total("karrot_events_rejected_total")
        return "if the refusals in this list are Burrow's, fix their cause; otherwise, " if any_refused else ""

    @property
    def heard(self) -> dict[str, float]:
        """Seconds since the last webhook of each cluster's Burrow; infinite if there was none."""
        now = self.now.timestamp()
        return {
            sample.labels.get("cluster", ""): abs(now - sample.value) if sample.value else float("inf")
            for sample in self.of("karrot_last_event_timestamp_seconds")
        }

    def age(self, when: datetime | None) -> float:
        """The seconds since a time; infinite if the time is not known."""
        return float("inf") if when is None else abs((self.now - when).total_seconds())


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
    """Prometheus' data about Karrot. ``now`` is Prometheus' time, ``targets`` are the targets that belong to Karrot.

    ``exported`` are the labels of Karrot that Prometheus renamed to ``exported_...``. ``series`` is the number of
    samples of ``karrot_consumer_lag``. ``doubled`` is the number of groups with more than one such sample. ``rules``
    has all alert rules as one text, or is ``None`` if they could not be read. ``beats`` names the metrics that show
    that Burrow, watch or evaluate still sends verdicts, if it has sent one.
    """

    url: str
    now: datetime
    targets: Sequence[Target] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    exported: Sequence[str] = ()
    series: int = 0
    doubled: int = 0
    beats: Sequence[str] = ()
    rules: str | None = None
    unread: Sequence[Unread] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSeen:
    """The metrics of ``karrot pipeline evaluate``. ``now`` is the time on the doctor's machine.

    Before the first batch, ``last_batch`` is the time at which the process started, and ``batch_seconds`` and
    ``groups`` are ``None``. The counts begin with the process. ``trouble`` is why ``/healthz`` answers 503.
    """

    url: str
    now: datetime
    interval: float
    last_batch: datetime
    batches: int = 0
    batch_seconds: float | None = None
    groups: int | None = None
    delivered: int = 0
    refused: int = 0
    unreadable: int = 0
    is_catching_up: bool = False
    log_end_failures: int = 0
    trouble: str | None = None
    unread: Sequence[Unread] = ()

    @property
    def patience(self) -> float:
        """The seconds after which verdicts are too old: three intervals, as in the alert KarrotEvaluateBehind."""
        return 3 * self.interval

    @property
    def age(self) -> float:
        """The seconds between now and the last batch, or the start if there was no batch."""
        return abs((self.now - self.last_batch).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The data read from each program; ``None`` for a program whose URL was not given."""

    burrow: BurrowSeen | Away | None = None
    evaluate: EvaluateSeen | Away | None = None
    karrot: KarrotSeen | Away | None = None
    prometheus: PrometheusSeen | Away | None = None
