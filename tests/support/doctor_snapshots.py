"""Makes snapshots for the doctor's checks, by default without any fault."""

from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client.samples import Sample

from karrot.api.bodies import (
    BadPartitions,
    Component,
    Group,
    GroupEvent,
    RejectedBody,
    Rejects,
    ReporterProgress,
    Reporters,
)
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
from karrot.doctor.read_and_check_prometheus import PrometheusSeen, Target
from karrot.doctor.read_burrow import BurrowSeen, ReadWebhook
from karrot.doctor.read_karrot import KarrotSeen
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
        start=OffsetSample(100, end - int(span_s * 1000), lag=0),
        end=OffsetSample(200, end, lag=lag),
        complete=1.0,
    )
    return LagEvent(
        cluster, consumer, status, lag, end, Source.REST, complete=1.0, partition_count=1, partitions=(partition,)
    )


MODULES: dict[str, Any] = {
    "clusters": ClusterModule(
        class_name="kafka", servers=("kafka:9092",), client_profile=PROFILE, topic_refresh=60, offset_refresh=10
    ),
    "consumers": ConsumerModule(class_name="kafka", cluster="prod", client_profile=PROFILE),
    "storages": StorageModule(class_name="inmemory", intervals=10, min_distance=1, expire_group=604_800),
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
) -> Group:
    others: dict[str, Any] = dict.fromkeys(Group.__struct_fields__)
    others |= {"lag_seconds_extrapolated": False, "kind": "observation", "incidents_total": 0, "burrow_cut_off": False}
    told = {"cluster": cluster, "consumer": consumer, "status": status, "lag": lag, "source": source}
    return Group(**(others | told | {"bad_partitions": BadPartitions(*[0] * 6), "last_event_at": seconds_ago(age_s)}))


def group_history(*gaps_s: float, ids: str = "", source: str = "webhook") -> tuple[GroupEvent, ...]:
    """Make events with these seconds between them, the newest 5 s ago; ``ids`` has one letter each, oldest first."""
    at, events = NOW - timedelta(seconds=5 + sum(gaps_s)), []
    for number, gap in enumerate((0.0, *gaps_s)):
        at += timedelta(seconds=gap)
        identity = ids[number] if ids else None
        events.append(GroupEvent(str(number), at, at, source, "observation", "OK", 0, 0, 0, identity))
    return tuple(reversed(events))


def reporter(name: str, state: str, error: str | None = None, backlog: int = 0, age_s: float = 0.0) -> ReporterProgress:
    return ReporterProgress(name, state, None, backlog, age_s, None, error, None, None)


def rejects(code: str, *times_ago_s: float) -> Rejects:
    return Rejects([RejectedBody(seconds_ago(each), code, "It was wrong.", "webhook", "") for each in times_ago_s])


def metric_sample(name: str, value: float, **labels: str) -> Sample:
    return Sample(name, labels, value)


def karrot_snapshot(*samples: Sample, **fields: Any) -> KarrotSeen:
    """Make a snapshot of Karrot; the samples replace default ones of the same name."""
    usual = (
        metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(10).timestamp(), cluster="prod"),
        metric_sample("karrot_burrow_cut_off", 0, cluster="prod"),
        metric_sample("karrot_events_rejected_total", 0, code="unsupported_template"),
        metric_sample("karrot_events_rejected_total", 0, code="unauthorized"),
        metric_sample("karrot_consumers", 2),
    )
    replaced = {each.name for each in samples}
    told: dict[str, Any] = {
        "url": KARROT,
        "now": NOW,
        "components": {
            "log": Component("ok"),
            "reporter prometheus": Component("idle"),
            "resync": Component("ok"),
        },
        "settings": {
            "KARROT_STALE_AFTER": "300s",
            "KARROT_EVENT_LOG": "postgresql://karrot@db/karrot",
            "KARROT_CLOUDWATCH_LAYOUT": "dimensions",
            "KARROT_CLOUDWATCH_NAMESPACE": "Karrot",
            "KARROT_REPORTERS": "prometheus,cloudwatch",
            "KARROT_CLOUDWATCH_METRICS": "ScalableLag,Status",
            "KARROT_EXPECTED_CLUSTERS": "prod",
            "KARROT_BURROW_URL": "http://burrow:8000",
        },
        "reporters": Reporters([reporter("prometheus", "idle")], "karrot-0"),
        "groups": (read_group("audit"), read_group("billing")),
        "rejects": Rejects([]),
        "histories": {GroupKey("prod", "billing"): group_history(30, 31, 30, 30, 29, 30)},
        "samples": (*(each for each in usual if each.name not in replaced), *samples),
    }
    return KarrotSeen(**(told | fields))


def scrape_target(**fields: Any) -> Target:
    told: dict[str, Any] = {
        "scrape_url": f"{KARROT}/metrics",
        "health": "up",
        "labels": {"job": "karrot", "instance": "karrot:5000"},
    }
    return Target(**(told | fields))


def prometheus_snapshot(*targets: Target, **fields: Any) -> PrometheusSeen:
    told: dict[str, Any] = {"targets": targets or (scrape_target(),)}
    return PrometheusSeen(**(told | fields))


def passes(check: Check, *sides: Any) -> bool:
    """Return whether a check reports only success."""
    return [(each.level, each.what) for each in check(*sides)] == [(Level.OK, check.success)]


def finds_nothing(check: Check, *sides: Any) -> bool:
    """Return whether a check reports nothing, because it has no data."""
    return check(*sides) == []


def only_finding(check: Check, *sides: Any) -> tuple[str, str, str]:
    """Return level, sentence and remedy of the only finding of a check."""
    (finding,) = check(*sides)
    assert isinstance(finding, Finding)
    return str(finding.level), finding.what, finding.remedy
