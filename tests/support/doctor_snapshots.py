"""Makes snapshots for the doctor's checks, by default without any fault."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from karrot.burrow.client import (
    ClientProfile,
    ClusterModule,
    ConsumerModule,
    EvaluatorModule,
    NotifierModule,
    StorageModule,
    ZooKeeperConfig,
)
from karrot.doctor.checks import Check, Finding, Level
from karrot.doctor.snapshot_types import (
    BurrowSeen,
    EvaluateSeen,
    KarrotSeen,
    PrometheusSeen,
    ReadComponent,
    ReadEventLog,
    ReadGroup,
    ReadGroupEvent,
    ReadSample,
    ReadServer,
    ReadStandby,
    ReadWebhook,
    RecipeInput,
    Reporter,
    Target,
)
from karrot.event import GroupKey, LagEvent, OffsetSample, PartitionLag, Source

KARROT = "http://karrot:5000"
NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
WEBHOOK = f"{KARROT}/burrow"
PROFILE = ClientProfile(name="kafka", client_id="burrow", kafka_version="3.6.0")


def seconds_ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def replace_fields(struct: Any, **fields: Any) -> Any:
    """Return the same struct with some fields replaced."""
    return type(struct)(**{name: getattr(struct, name) for name in struct.__struct_fields__} | fields)


def notifier_module(**fields: Any) -> NotifierModule:
    told: dict[str, Any] = {
        "class_name": "http",
        "interval": 30,
        "threshold": 1,
        "send_close": True,
        "template_open": "/etc/burrow/karrot.tmpl",
        "template_close": "/etc/burrow/karrot.tmpl",
        "timeout": 5,
        "url_open": WEBHOOK,
        "url_close": WEBHOOK,
        "method_open": "POST",
        "method_close": "POST",
        "group_allowlist": "",
    }
    return NotifierModule(**(told | fields))


def make_verdict(
    consumer: str = "billing", *, status: str = "OK", lag: int = 50, span_s: float = 90, cluster: str = "prod"
) -> LagEvent:
    end = int(NOW.timestamp() * 1000)
    partition = PartitionLag(
        topic="orders",
        partition=0,
        status_text=status,
        current_lag=lag,
        start=OffsetSample(100, end - int(span_s * 1000), 0),
        end=OffsetSample(200, end, lag),
        complete=1.0,
    )
    return LagEvent(
        cluster, consumer, status, lag, end, Source.REST, complete=1.0, partition_count=1, partitions=(partition,)
    )


MODULES: dict[str, Any] = {
    "clusters": ClusterModule(
        class_name="kafka", servers=("kafka:9092",), client_profile=PROFILE, topic_refresh=60, offset_refresh=10
    ),
    "consumers": ConsumerModule(class_name="kafka", cluster="prod", client_profile=PROFILE, group_allowlist=""),
    "storages": StorageModule(
        class_name="inmemory", intervals=10, min_distance=1, expire_group=604_800, group_allowlist=""
    ),
    "evaluators": EvaluatorModule(class_name="caching", expire_cache=10),
}


def burrow_module(kind: str, **fields: Any) -> dict[str, Any]:
    """Return the only module of a kind, with some fields replaced, in the form for `burrow_snapshot`."""
    return {kind: {"prod" if kind in ("clusters", "consumers") else "default": replace_fields(MODULES[kind], **fields)}}


def burrow_snapshot(*notifiers: NotifierModule, **fields: Any) -> BurrowSeen:
    """Make a snapshot of Burrow, by default with one notifier. Notifiers are named ``a``, ``b`` and so on."""
    told: dict[str, Any] = {
        "url": "http://burrow:8000",
        "zookeeper": ZooKeeperConfig(servers=("zookeeper:2181",)),
        "notifiers": dict(zip("abc", notifiers or (notifier_module(),), strict=False)),
        "listed": ("prod",),
        "groups": {"prod": ("audit", "billing", "burrow-prod")},
        "topics": {"prod": 3},
        "verdicts": (make_verdict("audit"), make_verdict("billing"), make_verdict("burrow-prod")),
        "webhooks": {WEBHOOK: ReadWebhook(405, "", is_karrot=True)},
        "karrot_url": KARROT,
    }
    for kind in MODULES:
        told |= burrow_module(kind)
    return BurrowSeen(**(told | fields))


def read_group(
    consumer: str = "billing",
    *,
    status: str = "OK",
    lag: int | None = 50,
    cluster: str = "prod",
    source: str = "webhook",
    age_s: float = 10,
) -> ReadGroup:
    return ReadGroup(cluster, consumer, status, lag, source, seconds_ago(age_s))


def group_history(*gaps_s: float, ids: str = "") -> tuple[ReadGroupEvent, ...]:
    """Make webhooks with these seconds between them, the newest 5 s ago; ``ids`` has one letter each, oldest first."""
    at, events = NOW - timedelta(seconds=5 + sum(gaps_s)), []
    for number, gap in enumerate((0.0, *gaps_s)):
        at += timedelta(seconds=gap)
        events.append(ReadGroupEvent(at, "webhook", ids[number] if ids else None))
    return tuple(reversed(events))


def evaluate_snapshot(**fields: Any) -> EvaluateSeen:
    told: dict[str, Any] = {
        "url": "http://evaluate:9308",
        "now": NOW,
        "interval": 60.0,
        "last_batch": seconds_ago(70),
        "batches": 100,
        "batch_seconds": 12.5,
        "groups": 2,
        "delivered": 200,
    }
    return EvaluateSeen(**(told | fields))


def metric_sample(name: str, value: float, **labels: str) -> ReadSample:
    return ReadSample(name, labels, value)


def read_event_log(**fields: Any) -> ReadEventLog:
    """Make the event log of a replica; ``server`` are fields of its database server."""
    server: dict[str, Any] = {
        "host": "10.0.3.7",
        "version": "16.4 (Debian)",
        "encrypted": True,
        "synchronous_commit": "on",
        "synchronous_standby_names": "zone_b",
        "connections": 14,
        "max_connections": 97,
        "standbys": (ReadStandby("zone_b", "sync", 0, 0.0),),
    } | fields.pop("server", {})
    told: dict[str, Any] = {
        "log_id": "0123abcd",
        "replica": "karrot-0",
        "leader": "karrot-0",
        "database": ReadServer(**server),
    }
    return ReadEventLog(**(told | fields))


def karrot_snapshot(*samples: ReadSample, **fields: Any) -> KarrotSeen:
    """Make a snapshot of Karrot; the samples replace default ones of the same name."""
    usual = (
        metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(10).timestamp(), cluster="prod"),
        metric_sample("karrot_burrow_cut_off", 0, cluster="prod"),
        metric_sample("karrot_events_accepted_total", 500, source="webhook"),
        metric_sample("karrot_events_accepted_total", 200, source="kafka"),
        metric_sample("karrot_events_rejected_total", 0, code="unsupported_template"),
        metric_sample("karrot_events_rejected_total", 0, code="unauthorized"),
        metric_sample("karrot_consumers", 2),
    )
    replaced = {each.name for each in samples}
    told: dict[str, Any] = {
        "url": KARROT,
        "now": NOW,
        "components": {
            "log": ReadComponent("ok"),
            "reporter prometheus": ReadComponent("idle"),
            "resync": ReadComponent("ok"),
        },
        "settings": {
            "KARROT_STALE_AFTER": "300s",
            "KARROT_REPORTERS": "prometheus,cloudwatch",
            "KARROT_CLOUDWATCH_METRICS": "ScalableLag,Status",
            "KARROT_EXPECTED_CLUSTERS": "prod",
            "KARROT_BURROW_URL": "http://burrow:8000",
        },
        "reporters": (Reporter("prometheus", "idle"),),
        "groups": (read_group("audit"), read_group("billing")),
        "rejects": (),
        "histories": {GroupKey("prod", "billing"): group_history(30, 31, 30, 30, 29, 30)},
        "recipes": (RecipeInput("Karrot", "prod", "billing", ("ScalableLag", "Status"), 60, "scaling.yaml"),),
        "event_log": read_event_log(),
        "replicas": {"http://karrot-1:5000": read_event_log(replica="karrot-1")},
        "samples": (*(each for each in usual if each.name not in replaced), *samples),
    }
    return KarrotSeen(**(told | fields))


def scrape_target(**fields: Any) -> Target:
    told: dict[str, Any] = {
        "scrape_url": f"{KARROT}/metrics",
        "health": "up",
        "labels": {"job": "karrot", "instance": "karrot:5000"},
        "scrape_pool": "karrot",
        "last_scrape": seconds_ago(5),
        "last_scrape_duration": 0.1,
        "scrape_interval": "15s",
        "scrape_timeout": "10s",
    }
    return Target(**(told | fields))


def prometheus_snapshot(*targets: Target, **fields: Any) -> PrometheusSeen:
    told: dict[str, Any] = {
        "url": "http://prometheus:9090",
        "now": NOW,
        "targets": targets or (scrape_target(),),
        "config": {"scrape_configs": [{"job_name": "karrot"}]},
        "series": 2,
        "beats": ("karrot_last_event_timestamp_seconds",),
        "rules": "time() - karrot_last_event_timestamp_seconds > 300",
    }
    return replace(PrometheusSeen(url="", now=NOW), **(told | fields))


def passes(check: Check[Any], *sides: Any) -> bool:
    """Return whether a check reports only success."""
    return [(each.level, each.what) for each in check(*sides)] == [(Level.OK, check.well)]


def finds_nothing(check: Check[Any], *sides: Any) -> bool:
    """Return whether a check reports nothing, because it has no data."""
    return check(*sides) == []


def only_finding(check: Check[Any], *sides: Any) -> tuple[str, str, str]:
    """Return level, sentence and remedy of the only finding of a check."""
    (finding,) = check(*sides)
    assert isinstance(finding, Finding)
    return str(finding.level), finding.what, finding.remedy
