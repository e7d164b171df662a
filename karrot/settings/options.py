"""Declares every option: name, default, kind and one sentence."""
# ruff: noqa: RUF009  (an option is declared where its attribute is: `option` and the kinds only describe it)

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from karrot.settings import types
from karrot.settings.sources import PREFIX
from karrot.settings.types import Address, Secret, ValueKind

T = TypeVar("T")

ARCHIVE = ("KARROT_ARCHIVE_",)
"""What the names of the ``archive`` reporter's settings begin with."""

CLOUDWATCH = ("KARROT_CLOUDWATCH_", "KARROT_IAM_ROLE")
"""What the names of the ``cloudwatch`` reporter's settings begin with."""

KAFKA = ("KARROT_KAFKA_",)
"""What the names of the ``kafka`` reporter's settings begin with."""


class Option(NamedTuple):
    """What is known of one setting. ``reloads`` is false where a change needs a restart."""

    attribute: str
    default: str
    kind: ValueKind[Any]
    sentence: str
    reloads: bool

    @property
    def name(self) -> str:
        """The environment variable."""
        return PREFIX + self.attribute.upper()

    @property
    def is_secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind is types.secret


def option(default: str, kind: ValueKind[T], sentence: str, *, reloads: bool = True) -> T:
    """Declare an option that always has a value."""
    return field(default=kind.read(default), metadata={"of": (default, kind, sentence, reloads)})


def listed(kind: ValueKind[tuple[str, ...]], sentence: str) -> tuple[str, ...]:
    """Declare an option that is a list, empty unless told."""
    return field(default=(), metadata={"of": ("", kind, sentence, True)})


def optional(kind: ValueKind[T], sentence: str) -> T | None:
    """Declare an option that may be left out."""
    return field(default=None, metadata={"of": ("", kind, sentence, True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What Karrot runs with. Spans of time are seconds, sizes are bytes."""

    log: str = option(
        "INFO", types.one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "The lowest level that is logged."
    )
    reporters: tuple[str, ...] = option("prometheus", types.names, "The reporters that are on.")
    compat: str | None = optional(
        types.one_of("2019"), "Turns the defaults of the first Karrot on, the cloudwatch reporter among them."
    )
    external_url: str | None = optional(
        types.url, "The address at which people reach Karrot, for links and for the configuration Burrow is given."
    )
    expected_clusters: tuple[str, ...] = listed(
        types.texts, "Clusters whose Burrow must be heard: each is exported as never heard until it is."
    )

    bind: Address = option(
        "0.0.0.0:5000", types.address, "Where to listen; [::]:5000 takes IPv6 and IPv4.", reloads=False
    )
    workers: int = option("2", types.whole(1, 64), "Worker processes.")
    threads: int = option(
        "16",
        types.whole(1, 256),
        "Threads of each worker, and a quarter as many for scrapes and pages; events need none.",
    )
    max_body: int = option("8MiB", types.size(2**10, 2**25), "The largest event that is taken.")
    header_timeout: float = option("2s", types.timeout(0.1, 60), "How long a client may take to send its headers.")
    body_timeout: float = option("4s", types.timeout(0.1, 60), "How long a client may take to send its body.")
    tls_cert: Path | None = optional(types.path, "The certificate chain (PEM); with it Karrot speaks HTTPS.")
    tls_key: Path | None = optional(types.path, "The key of the certificate (PEM).")

    data_dir: Path = option("./karrot-data", types.path, "Where the event log lives; a local disk.", reloads=False)
    event_log: str = option(
        "sqlite",
        types.one_of("sqlite", "memory", note="postgresql:// is refused until it is built"),
        "How events are kept; memory forgets them at the end.",
        reloads=False,
    )
    retention: int = option("24h", types.duration(1, 3650 * 86400), "How long an event is kept.")
    max_log_bytes: int = option(
        "1GiB", types.size(2**20, 2**46), "How large the event log may grow; the oldest events go first."
    )
    stale_after: int = option(
        "300s", types.duration(1, 365 * 86400), "How long after its last event a group is still shown."
    )

    max_consumers: int = option(
        "50000", types.whole(1, 10_000_000), "How many groups are tracked; more are logged and counted."
    )
    partition_metrics: bool = option("false", types.flag, "Exports lag and status of each partition that Burrow lists.")
    topic_metrics: bool = option("false", types.flag, "Exports the lag of each topic of a group.")
    exclude_consumers: re.Pattern[str] | None = optional(
        types.pattern, "Groups whose name matches anywhere are stored but not exported."
    )

    cloudwatch_namespace: str = option("Karrot", types.namespace, "The CloudWatch namespace of the metrics.")
    cloudwatch_interval: int = option(
        "30s", types.duration(1, 3600), "How often CloudWatch is sent what is new; at most 60s fills every minute."
    )
    cloudwatch_metrics: tuple[str, ...] = option(
        "Lag",
        types.some_of("Lag", "ScalableLag", "MaxLag", "LagSeconds", "Status"),
        "The metrics of each group; each is billed for each group.",
    )
    cloudwatch_layout: tuple[str, ...] = option(
        "dimensions",
        types.some_of("dimensions", "legacy"),
        "Dimensions Cluster and ConsumerGroup, or the first Karrot's layout (the group is the metric), or both.",
    )
    cloudwatch_max_groups: int = option(
        "1000", types.whole(1, 1_000_000), "How many groups have metrics in CloudWatch; who is in stays in."
    )
    cloudwatch_include: re.Pattern[str] | None = optional(
        types.pattern, "Only groups whose name matches anywhere are sent to CloudWatch."
    )
    cloudwatch_exclude: re.Pattern[str] | None = optional(
        types.pattern, "Of those, groups whose name matches anywhere are not sent."
    )
    cloudwatch_ttl: int = option(
        "180s", types.duration(1, 86400), "A value older than this helps no alarm any more and is not sent."
    )
    cloudwatch_min_complete: float = option(
        "0", types.share, "Values of a group with a smaller share of full windows are held back."
    )
    cloudwatch_resolution: int = option(
        "60", types.seconds_of("1", "60"), "Storage resolution in seconds; 1 allows alarms every 10 seconds."
    )
    iam_role: str | None = optional(types.role, "The role (ARN) that is assumed to send metrics to CloudWatch.")

    archive_dir: str | None = optional(
        types.place,
        "Where the archive reporter writes: a folder, or s3://bucket/prefix; the folder archive of the data directory "
        "unless told.",
    )
    archive_segment_seconds: int = option(
        "60s", types.duration(1, 3600), "How long an event waits at most until its segment is written."
    )
    archive_segment_bytes: int = option(
        "8MiB", types.size(2**12, 2**28), "How many bytes of lines a segment holds at most, before compression."
    )
    archive_retention: int = option("30d", types.duration(3600, 3650 * 86400), "How long a segment is kept.")
    archive_max_bytes: int = option(
        "4GiB", types.size(2**20, 2**50), "How large all segments may grow; the oldest go first."
    )
    kafka_bootstrap: tuple[str, ...] = listed(
        types.brokers, "Brokers of the Kafka cluster that the kafka reporter writes to; needs karrot-burrow[kafka]."
    )
    kafka_topic: str = option("karrot.events", types.topic, "The topic that it writes to. Karrot does not create it.")
    kafka_properties: Path | None = optional(
        types.path, "A file of client properties for TLS, SASL or MSK IAM, under librdkafka's or Java's names."
    )
    tables_dir: Path | None = optional(
        types.tables,
        "The pipeline's tables, shown on the page of a group; the folder tables of the data directory unless told.",
    )

    burrow_url: str | None = optional(
        types.url, "Burrow's address, whose REST API fills in what webhooks lost and tells deleted groups."
    )
    resync_interval: int = option("120s", types.duration(10, 86400), "How often Burrow's REST API is read.")

    watch_bootstrap: tuple[str, ...] = listed(
        types.brokers, "Brokers of a Kafka cluster to watch without Burrow; needs karrot-burrow[kafka]."
    )
    watch_cluster: str | None = optional(types.text, "The name of that cluster in events and metrics.")
    watch_interval: int = option("10s", types.duration(1, 3600), "How often Kafka is asked; a ring is ten of these.")
    watch_properties: Path | None = optional(
        types.path, "A file of client properties for TLS, SASL or MSK IAM, under librdkafka's or Java's names."
    )
    watch_exclude: re.Pattern[str] | None = optional(
        types.pattern, "Groups whose name matches anywhere are not watched."
    )

    burrow_username: str | None = optional(types.user, "The user of Basic authentication on /burrow.")
    burrow_password: Secret | None = optional(types.secret, "The password of Basic authentication on /burrow.")
    burrow_password_previous: Secret | None = optional(
        types.secret, "A password that is still valid while it is being changed."
    )
    burrow_token: Secret | None = optional(types.secret, "The token of Bearer authentication on /burrow.")
    burrow_token_previous: Secret | None = optional(
        types.secret, "A token that is still valid while it is being changed."
    )
    api_token: Secret | None = optional(
        types.secret, "The token of Bearer authentication on the pages, the API and /config."
    )
    metrics_auth: bool = option("false", types.flag, "Asks for the API token on /metrics too.")

    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``KARROT_*`` values that belong to a reporter that is on; any of them may be a secret."""

    def reporter_settings(self, reporter: str) -> Mapping[str, str]:
        """The ``KARROT_<REPORTER>_*`` values as texts: prefix removed, in lower case."""
        prefix = reporter_prefix(reporter)
        own = {each.name: _show(each, getattr(self, each.attribute)) for each in OPTIONS}
        told = own | dict(self.extras)
        return {name.removeprefix(prefix).lower(): text for name, text in told.items() if name.startswith(prefix)}


OPTIONS = tuple(Option(each.name, *each.metadata["of"]) for each in fields(Settings) if "of" in each.metadata)
"""Every option, in the order of the reference."""


def settings_of_reporter(reporter: str, texts: Mapping[str, str], *, shared: Collection[str] = ()) -> Settings:
    """The settings that a reporter's own texts stand for; an empty text, or none, leaves the default.

    Names are those of `Settings.reporter_settings`, and of settings that others share. Raises `ValueError` with a
    sentence that names the setting.
    """
    values = {}
    for each in OPTIONS:
        name = each.attribute if each.attribute in shared else each.attribute.removeprefix(f"{reporter}_")
        is_own = name != each.attribute or each.attribute in shared
        if is_own and (text := texts.get(name, "").strip()):
            values[each.attribute] = types.checked(each.kind, name, text)
    return Settings(**values)


def reporter_prefix(reporter: str) -> str:
    """What the names of a reporter's own settings begin with."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9]', '_', reporter).upper()}_"


def effective(settings: Settings) -> dict[str, str]:
    """Every setting as text under its ``KARROT_*`` name; secrets, and all that belongs to a reporter, as ``***``.

    What has no effect because the ``archive``, ``cloudwatch`` or ``kafka`` reporter is off is shown as nothing.
    """
    of_reporters = {"archive": ARCHIVE, "cloudwatch": CLOUDWATCH, "kafka": KAFKA}
    off = tuple(
        name for reporter, names in of_reporters.items() if reporter not in settings.reporters for name in names
    )
    shown = {
        option.name: "" if option.name.startswith(off) else _show(option, getattr(settings, option.attribute))
        for option in OPTIONS
    }
    return shown | dict.fromkeys(sorted(settings.extras), "***")


def needs_restart(old: Settings, new: Settings) -> tuple[str, ...]:
    """The names of settings that differ and that a reload cannot change."""
    return tuple(
        each.name
        for each in OPTIONS
        if not each.reloads and getattr(old, each.attribute) != getattr(new, each.attribute)
    )


def _show(option: Option, value: object) -> str:
    return "" if value is None else option.kind.show(value)
