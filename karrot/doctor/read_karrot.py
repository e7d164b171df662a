"""Reads health, settings, groups, refused requests and metrics of a running Karrot through its public routes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain

from msgspec import Struct
from prometheus_client.samples import Sample

from karrot.api.bodies import Component, Group, GroupDetail, GroupEvent, Heartbeat, Readiness, Rejects, Reporters
from karrot.doctor.reader_helpers import Parts, Unread, read_groups, read_samples
from karrot.event import GroupKey
from karrot.http_client import HttpClient, Limits, RequestFailed
from karrot.settings import types

METRICS = (
    "karrot_last_event_timestamp_seconds",
    "karrot_watch_last_poll_timestamp_seconds",
    "karrot_burrow_cut_off",
    "karrot_events_rejected_total",
    "karrot_consumers",
    "karrot_series_dropped_total",
    "karrot_log_replaced_total",
    "karrot_log_lost_events_total",
    "karrot_log_damaged_total",
    "karrot_reporter_dropped_total",
)
"""The metrics that are read from ``/metrics``."""

_HISTORIES = 5
_EVENTS = 30
_MISSING, _UNREADY = 404, 503


class _Config(Struct):
    config: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KarrotSeen:
    """Karrot's state as its routes show it. ``now`` is the time on Karrot's machine.

    ``settings``, ``reporters``, ``groups`` and ``rejects`` are ``None`` if they could not be read. ``has_all_groups``
    is false if there were too many groups to read all. ``histories`` has the newest events of some groups, newest
    first. ``not_due`` has the clusters whose Burrow has just started, with its age in seconds.
    """

    url: str
    now: datetime
    components: Mapping[str, Component] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None
    reporters: Reporters | None = None
    groups: Sequence[Group] | None = None
    has_all_groups: bool = True
    rejects: Rejects | None = None
    histories: Mapping[GroupKey, Sequence[GroupEvent]] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    not_due: Mapping[str, float] = field(default_factory=dict)
    unread: Sequence[Unread] = ()

    def setting(self, name: str) -> str:
        """Return a setting as a string; an empty string if the setting is not set or was not read."""
        return (self.settings or {}).get(f"KARROT_{name}", "")

    @property
    def is_on_postgresql(self) -> bool:
        """Whether the event log is in PostgreSQL, so that replicas can share it."""
        return "://" in self.setting("EVENT_LOG")

    @property
    def stale_after(self) -> float:
        """``KARROT_STALE_AFTER`` in seconds, or its default if the settings were not read."""
        return types.duration(1, 10**9).read(self.setting("STALE_AFTER") or "300s")

    def of(self, metric: str) -> Iterator[Sample]:
        return (sample for sample in self.samples if sample.name == metric)

    def total(self, metric: str, **labels: str) -> float:
        return sum(sample.value for sample in self.of(metric) if labels.items() <= sample.labels.items())

    @property
    def unless_refused(self) -> str:
        """The beginning of the remedy for a missing event: an empty string if Karrot refused no requests."""
        any_refused = self.total("karrot_events_rejected_total")
        return "if the refusals in this list are Burrow's, fix their cause; otherwise, " if any_refused else ""

    @property
    def heard(self) -> dict[str, float]:
        """Seconds since the last webhook event of each cluster's Burrow; infinite without a webhook event."""
        now = self.now.timestamp()
        return {
            sample.labels.get("cluster", ""): abs(now - sample.value) if sample.value else float("inf")
            for sample in self.of("karrot_last_event_timestamp_seconds")
        }

    def age(self, when: datetime | None) -> float:
        """Return the seconds since a time; infinite for ``None``."""
        return float("inf") if when is None else abs((self.now - when).total_seconds())


def read_karrot(url: str, limits: Limits, *, token: str | None = None) -> KarrotSeen:
    """Read Karrot's state. Raises `RequestFailed` if Karrot does not answer at the URL."""
    parts = Parts()
    with HttpClient(url, limits, token=token) as client:
        now = client.read(Heartbeat, "/heartbeat").time
        ask = parts.read
        groups, has_all = ask("groups (/api/v1/groups)", partial(read_groups, client), (None, False))
        readiness = ask("readiness (/readyz)", partial(client.read, Readiness, "/readyz", also=_UNREADY), None)
        config = ask("settings (/config)", partial(client.read, _Config, "/config"), None)
        return KarrotSeen(
            url=client.url,
            now=now,
            components=readiness.components if readiness else {},
            settings=config.config if config else None,
            reporters=ask("reporters (/api/v1/reporters)", partial(client.read, Reporters, "/api/v1/reporters"), None),
            groups=groups,
            has_all_groups=has_all,
            rejects=ask("rejects (/api/v1/rejects)", partial(client.read, Rejects, "/api/v1/rejects"), None),
            histories=_histories(client, parts, groups or ()),
            samples=ask("metrics (/metrics)", partial(read_samples, client, METRICS), ()),
            unread=tuple(parts.unread),
        )


def _histories(client: HttpClient, parts: Parts, groups: Sequence[Group]) -> Mapping[GroupKey, Sequence[GroupEvent]]:
    """Read the newest events of the first groups of each cluster."""
    by_cluster: dict[str, list[GroupKey]] = defaultdict(list)
    for each in groups:
        by_cluster[each.cluster].append(GroupKey(each.cluster, each.consumer))
    some = chain.from_iterable(keys[:_HISTORIES] for keys in by_cluster.values())
    return {key: parts.read("events of groups (/api/v1/group)", partial(_history, client, key), ()) for key in some}


def _history(client: HttpClient, key: GroupKey) -> Sequence[GroupEvent]:
    try:
        return client.read(GroupDetail, "/api/v1/group", {**key._asdict(), "limit": str(_EVENTS)}).events or ()
    except RequestFailed as error:
        if error.status == _MISSING:  # the group was deleted after the list was read
            return ()
        raise
