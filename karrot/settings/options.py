"""Declares every setting with a name, a default, a kind of value and a short description."""
# ruff: noqa: RUF009  (a setting is declared at its attribute, and `option` only describes the setting)

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from karrot.settings import types
from karrot.settings.sources import PREFIX, Given
from karrot.settings.types import Address, Bucket, Secret, ValueKind

T = TypeVar("T")
Pattern = re.Pattern[str] | None

_TRIED = 512


class Option(NamedTuple):
    """The declaration of one setting. ``section`` is the name of the setting's reporter, or an empty string.

    ``reloads`` is false if a change needs a restart.
    """

    section: str
    field: str
    name: str
    default: str
    kind: ValueKind[Any]
    sentence: str
    reloads: bool

    @property
    def key(self) -> str:
        """The setting's name in a configuration file."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def is_secret(self) -> bool:
        return self.kind is types.secret

    def of(self, settings: "Settings") -> Any:
        """The setting's value in ``settings``."""
        return getattr(getattr(settings, self.section) if self.section else settings, self.field)

    def shown(self, settings: "Settings") -> str:
        value = self.of(settings)
        return "" if value is None else self.kind.show(value)


def option(default: str, kind: ValueKind[T], sentence: str, *, reloads: bool = True, name: str = "") -> T:
    """Declare a setting that always has a value. ``name`` replaces the attribute's name, and has no prefix."""
    return field(default=kind.read(default), metadata={"of": (name, default, kind, sentence, reloads)})


def listed(kind: ValueKind[tuple[str, ...]], sentence: str) -> tuple[str, ...]:
    """Declare a setting whose value is a list. The default is an empty list."""
    return field(default=(), metadata={"of": ("", "", kind, sentence, True)})


def optional(kind: ValueKind[T], sentence: str, *, name: str = "") -> T | None:
    """Declare a setting without a default. Its value is ``None`` if the user does not set it."""
    return field(default=None, metadata={"of": (name, "", kind, sentence, True)})


class GroupMetricName(StrEnum):
    """The names of a consumer group's metrics in CloudWatch."""

    LAG = "Lag"
    SCALABLE_LAG = "ScalableLag"
    MAX_LAG = "MaxLag"
    LAG_SECONDS = "LagSeconds"
    SCALABLE_LAG_SECONDS = "ScalableLagSeconds"
    STATUS = "Status"


class Layout(StrEnum):
    """The way a metric identifies its group: by dimensions, or by the metric's name as in the first Karrot."""

    DIMENSIONS = "dimensions"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class CloudWatch:
    """The settings of the ``cloudwatch`` reporter."""

    namespace: str = option("Karrot", types.namespace, "The namespace of the metrics in CloudWatch.")
    interval_s: int = option(
        "30s",
        types.duration(1, 3600),
        "The time between two sends of new values to CloudWatch. With 60s or less, every minute gets a value.",
        name="CLOUDWATCH_INTERVAL",
    )
    metrics: tuple[GroupMetricName, ...] = option(
        "Lag",
        types.some_of(*GroupMetricName),
        "The metrics to send for each group. AWS bills each metric of each group.",
    )
    layouts: tuple[Layout, ...] = option(
        "dimensions",
        types.some_of(*Layout),
        "The form of the metrics. With dimensions, a metric has the dimensions Cluster and ConsumerGroup. With legacy, "
        "the name of the metric is the group's name, as in Karrot's first version.",
        name="CLOUDWATCH_LAYOUT",
    )
    max_groups: int = option(
        "1000",
        types.whole(1, 1_000_000),
        "The largest number of groups in CloudWatch. A new group waits until another is deleted or silent for a day.",
    )
    include: Pattern = optional(types.pattern, "Send to CloudWatch only groups whose name contains a match.")
    exclude: Pattern = optional(types.pattern, "Do not send to CloudWatch groups whose name contains a match.")
    ttl: int = option(
        "180s", types.duration(1, 86400), "The largest age of a value. Karrot does not send older values to CloudWatch."
    )
    min_complete: float = option(
        "0", types.share, "Karrot sends a group to CloudWatch only while its complete ratio is at least this share."
    )
    resolution: int = option(
        "60",
        types.seconds_of("1", "60"),
        "The storage resolution in CloudWatch, in seconds. With 1, alarms can have a period of 10 seconds.",
    )
    iam_role: str | None = optional(
        types.role, "The ARN of the IAM role that Karrot assumes before it sends to CloudWatch.", name="IAM_ROLE"
    )
    default_region: str | None = optional(
        types.text, "The AWS Region of CloudWatch if neither AWS_REGION nor AWS_DEFAULT_REGION is set."
    )

    @property
    def ttl_s(self) -> int:
        """The largest age of a value, at least two intervals, so that no value expires before the next send."""
        return max(2 * self.interval_s, self.ttl)

    def wants(self, consumer: str) -> bool:
        """Whether a group is sent. Only the first 512 characters are matched, because clients choose the names."""
        tried = consumer[:_TRIED]
        if self.include is not None and self.include.search(tried) is None:
            return False
        return self.exclude is None or self.exclude.search(tried) is None


@dataclass(frozen=True, slots=True)
class Archive:
    """The settings of the ``archive`` reporter."""

    place: Path | Bucket | None = optional(
        types.place,
        "The folder or s3://bucket/prefix to which the archive reporter writes. By default, Karrot uses the folder "
        "archive in the data directory.",
        name="ARCHIVE_DIR",
    )
    segment_s: int = option(
        "60s",
        types.duration(1, 3600),
        "The longest time that an event waits before the archive reporter writes it.",
        name="ARCHIVE_SEGMENT_SECONDS",
    )
    segment_bytes: int = option("8MiB", types.size(2**12, 2**28), "The largest size of a segment before compression.")
    retention_s: int = option(
        "30d", types.duration(3600, 3650 * 86400), "How long the archive keeps a segment.", name="ARCHIVE_RETENTION"
    )
    max_bytes: int = option(
        "4GiB",
        types.size(2**20, 2**50),
        "The largest total size of all segments. Beyond this size, Karrot deletes the oldest segments.",
    )
    body: bool = option(
        "true",
        types.flag,
        "Keep each received body in the archive. With false, a compressed segment has about half the size.",
    )


@dataclass(frozen=True, slots=True)
class Kafka:
    """The settings of the ``kafka`` reporter."""

    bootstrap: tuple[str, ...] = listed(
        types.brokers, "Brokers of the Kafka cluster that the kafka reporter writes to. Needs karrot-burrow[kafka]."
    )
    topic: str = option(
        "karrot.events", types.topic, "The topic that the kafka reporter writes to. Karrot does not create the topic."
    )
    properties: Path | None = optional(
        types.path,
        "A file with client properties of the kafka reporter (TLS, SASL, MSK IAM), with the names of librdkafka or of "
        "the Java client.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that Karrot runs with. Durations are in seconds, sizes in bytes.

    A built-in reporter gets only its own section: `CloudWatch`, `Archive` or `Kafka`.
    """

    log: str = option(
        "INFO",
        types.one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        "The lowest level of log messages that Karrot writes.",
    )
    reporters: tuple[str, ...] = option("prometheus", types.names, "The reporters to turn on.")
    compat: str | None = optional(
        types.one_of("2019"), "Use the defaults of Karrot's first version, which turn on the cloudwatch reporter."
    )
    external_url: str | None = optional(
        types.url, "The address at which people and Burrow reach Karrot. Links and Burrow's configuration use it."
    )
    expected_clusters: tuple[str, ...] = listed(
        types.texts,
        "Clusters that must send webhooks. While a cluster has not sent a webhook yet, /metrics shows 0 as the time "
        "of the cluster's last event.",
    )

    bind: Address = option(
        "0.0.0.0:5000", types.address, "The address to listen on. [::]:5000 accepts IPv6 and IPv4.", reloads=False
    )
    workers: int = option("2", types.whole(1, 64), "The number of worker processes.")
    threads: int = option(
        "16",
        types.whole(1, 256),
        "The number of threads in each worker for large events and health checks. Each worker has a quarter of this "
        "number in addition, for scrapes and pages.",
    )
    max_body: int = option("8MiB", types.size(2**10, 2**25), "The largest size of an event that Karrot accepts.")
    header_timeout: float = option("2s", types.timeout(0.1, 60), "How long a client may take to send its headers.")
    body_timeout: float = option("4s", types.timeout(0.1, 60), "How long a client may take to send its body.")
    tls_cert: Path | None = optional(types.path, "The TLS certificate chain (PEM). It makes Karrot use HTTPS.")
    tls_key: Path | None = optional(types.path, "The private key of the TLS certificate (PEM).")

    data_dir: Path = option(
        "./karrot-data", types.path, "The directory of the event log, on a local disk.", reloads=False
    )
    event_log: str = option(
        "sqlite",
        types.event_log,
        "Where Karrot keeps events. PostgreSQL lets several replicas share the events, and needs "
        "karrot-burrow[postgres]. With memory, a restart loses all events.",
        reloads=False,
    )
    event_log_password_file: Path | None = optional(
        types.path,
        "A file with the password for PostgreSQL. Karrot reads it again for each connection, so you can change it.",
    )
    event_log_password_command: str | None = optional(
        types.text, "A command that prints the password for PostgreSQL. Karrot runs it again for new connections."
    )
    event_log_rds_iam: bool = option(
        "false", types.flag, "Sign in to Amazon RDS or Aurora with IAM: Karrot makes a token for each connection."
    )
    retention: int = option("24h", types.duration(1, 3650 * 86400), "How long the event log keeps an event.")
    max_log_bytes: int = option(
        "1GiB",
        types.size(2**20, 2**46),
        "The largest size of the event log. If the log is larger, Karrot deletes the oldest events.",
    )
    log_end_max_bytes: int = option(
        "64MiB",
        types.size(2**16, 2**40),
        "The largest size of all log-end histories. Beyond this size, Karrot deletes the least recent histories.",
    )
    stale_after: int = option(
        "300s", types.duration(1, 365 * 86400), "How long Karrot shows a group after its last event."
    )

    max_consumers: int = option(
        "50000",
        types.whole(1, 10_000_000),
        "The largest number of groups to track. Karrot stores the events of other groups, but exports no metrics.",
    )
    partition_metrics: bool = option(
        "false", types.flag, "Export the lag and status of each partition that Burrow lists, of at most 100,000."
    )
    topic_metrics: bool = option("false", types.flag, "Export the lag of each topic of a group.")
    exclude_consumers: Pattern = optional(
        types.pattern, "Do not export groups whose name contains a match. Karrot still stores their events."
    )

    cloudwatch: CloudWatch = field(default=CloudWatch())
    archive: Archive = field(default=Archive())
    kafka: Kafka = field(default=Kafka())
    notify_config: Path | None = optional(
        types.path,
        "The TOML file with the channels of the notify reporter, and their secrets. Needs karrot-burrow[notify].",
    )
    tables_dir: Path | Bucket | None = optional(
        types.place,
        "The folder or s3://bucket/prefix with the pipeline's tables. The page of a group shows data from these "
        "tables. By default, Karrot uses the folder tables in the data directory.",
    )

    burrow_url: str | None = optional(
        types.url, "Burrow's address. Karrot then asks Burrow's REST API for lost events and deleted groups."
    )
    resync_interval: int = option("120s", types.duration(10, 86400), "How often Karrot reads Burrow's REST API.")
    burrow_cut_off_after: int = option(
        "300s",
        types.duration(10, 365 * 86400),
        "Burrow counts as cut off from Kafka after this time without a new commit or a log end that moves.",
    )

    watch_bootstrap: tuple[str, ...] = listed(
        types.brokers, "Brokers of a Kafka cluster to watch without Burrow. Needs karrot-burrow[kafka]."
    )
    watch_cluster: str | None = optional(types.text, "The name of the watched cluster in events and metrics.")
    watch_interval: int = option(
        "10s", types.duration(1, 3600), "How often to poll Kafka. A group's window holds ten polls."
    )
    watch_properties: Path | None = optional(
        types.path,
        "A file with client properties of watch (TLS, SASL, MSK IAM), with the names of librdkafka or of "
        "the Java client.",
    )
    watch_properties_inline: Secret | None = optional(
        types.secret,
        "The client properties of watch themselves, one in each line, instead of the file in KARROT_WATCH_PROPERTIES.",
    )
    watch_groups: Pattern = optional(types.pattern, "Watch only groups whose name contains a match.")
    watch_exclude_groups: Pattern = optional(types.pattern, "Do not watch groups whose name contains a match.")
    watch_topics: Pattern = optional(types.pattern, "Watch only topics whose name contains a match.")
    watch_exclude_topics: Pattern = optional(types.pattern, "Do not watch topics whose name contains a match.")
    watch_offsets_elsewhere: Pattern = optional(
        types.pattern,
        "Groups whose name contains a match keep their offsets outside Kafka: a missing offset is no problem for them.",
    )
    watch_allowed_lag: int = option("0", types.whole(0, 2**62), "A partition with at most this lag is always OK.")
    abandoned_after: int = option(
        "1h",
        types.duration(0, 365 * 86400),
        "A group without members is abandoned if watch saw that it was active for less than this time in all, or that "
        "its topics got nothing for this time.",
    )
    abandoned_groups: Pattern = optional(types.pattern, "Groups with such names are abandoned without members.")

    burrow_username: str | None = optional(types.user, "The user name for Basic authentication on /burrow.")
    burrow_password: Secret | None = optional(types.secret, "The password for Basic authentication on /burrow.")
    burrow_password_previous: Secret | None = optional(
        types.secret, "The previous password, which stays valid while you change KARROT_BURROW_PASSWORD."
    )
    burrow_token: Secret | None = optional(types.secret, "The token for Bearer authentication on /burrow.")
    burrow_token_previous: Secret | None = optional(
        types.secret, "The previous token, which stays valid while you change KARROT_BURROW_TOKEN."
    )
    api_token: Secret | None = optional(
        types.secret, "The token for Bearer authentication on the pages, the API and /config."
    )
    api_token_previous: Secret | None = optional(
        types.secret, "The previous token, which stays valid while you change KARROT_API_TOKEN."
    )
    metrics_auth: bool = option("false", types.flag, "Require the API token on /metrics too.")

    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The ``KARROT_*`` values of third-party reporters that are on. Any of these values may be a secret."""

    secret_files: Mapping[str, Given] = field(default_factory=dict, repr=False)
    """The files of the secrets, by attribute name."""

    @property
    def is_on_postgresql(self) -> bool:
        return "://" in self.event_log

    @property
    def watch_client(self) -> Path | Secret | None:
        """The client properties of ``watch``, as a file or inline."""
        return self.watch_properties_inline or self.watch_properties

    def reporter_settings(self, reporter: str) -> Mapping[str, str]:
        """The ``KARROT_<REPORTER>_*`` values of a third-party reporter, by lower-case names without prefix."""
        prefix = reporter_prefix(reporter)
        return {
            name.removeprefix(prefix).lower(): text for name, text in self.extras.items() if name.startswith(prefix)
        }


SECTIONS = {"cloudwatch": CloudWatch, "archive": Archive, "kafka": Kafka}
"""The built-in reporters that have settings, each with its section."""


def _declared(owner: Any, section: str = "") -> Iterator[Option]:
    for each in fields(owner):
        if not section and each.name in SECTIONS:
            yield from _declared(SECTIONS[each.name], each.name)
        elif "of" in each.metadata:
            name, *others = each.metadata["of"]
            yield Option(section, each.name, PREFIX + (name or f"{section}_{each.name}".lstrip("_").upper()), *others)


OPTIONS = tuple(_declared(Settings))
"""Every setting, in the order of the reference."""


def reporter_prefix(reporter: str) -> str:
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9]', '_', reporter).upper()}_"


def effective(settings: Settings) -> dict[str, str]:
    """Every setting as a string. A secret is ``***``. A setting of a reporter that is off is an empty string."""
    off = SECTIONS.keys() - set(settings.reporters)
    shown = {each.name: "" if each.section in off else each.shown(settings) for each in OPTIONS}
    return shown | dict.fromkeys(sorted(settings.extras), "***")


def needs_restart(old: Settings, new: Settings) -> tuple[Option, ...]:
    """The changed settings that a reload cannot apply."""
    return tuple(each for each in OPTIONS if not each.reloads and each.of(old) != each.of(new))
