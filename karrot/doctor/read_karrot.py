"""Reads health, settings, groups, rejects and metrics of a running Karrot through its public routes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from karrot.burrow.client import Asking
from karrot.doctor.http_get import NotTold, Parts, Web, read_samples, understood
from karrot.doctor.snapshot_types import (
    Away,
    KarrotSeen,
    ReadComponent,
    ReadEventLog,
    ReadGroup,
    ReadGroupEvent,
    ReadReject,
    RecipeInput,
    Reporter,
)
from karrot.event import TEST_CLUSTERS, GroupKey

GROUPS_READ = 10_000
"""The maximum number of groups that are read."""

METRICS = (
    "karrot_last_event_timestamp_seconds",
    "karrot_watch_last_poll_timestamp_seconds",
    "karrot_burrow_cut_off",
    "karrot_events_accepted_total",
    "karrot_events_rejected_total",
    "karrot_consumers",
    "karrot_series_dropped_total",
    "karrot_log_replaced_total",
    "karrot_log_damaged_total",
    "karrot_reporter_dropped_total",
)
"""The metrics that are read from ``/metrics``."""

RECIPE_MARK = "# For karrot doctor --recipe: "
"""The beginning of the line that names a recipe's input, as JSON. The templates of the recipes print it."""

_PAGE = 1000
_HISTORIES = 5
_EVENTS = 30
_MISSING = 404
_UNREADY = 503


class _Beat(Struct):
    time: datetime


class _Readiness(Struct):
    components: dict[str, ReadComponent]


class _Config(Struct):
    config: dict[str, str]


class _Reporters(Struct):
    reporters: tuple[Reporter, ...]


class _Groups(Struct):
    groups: list[ReadGroup]
    next: str | None


class _History(Struct):
    events: tuple[ReadGroupEvent, ...] | None


class _Rejects(Struct):
    rejects: tuple[ReadReject, ...]


def read_karrot(
    url: str,
    asking: Asking,
    *,
    token: str | None = None,
    recipes: Sequence[RecipeInput] = (),
    replicas: Sequence[str] = (),
    has_evaluate: bool = False,
) -> KarrotSeen | Away:
    """Karrot's state, or `Away` if nothing answers at the URL or if another program answers.

    ``replicas`` are the URLs of its other replicas. Only the event log is read there. ``has_evaluate`` says whether the
    URL of ``karrot pipeline evaluate`` was given too.
    """
    parts = Parts()
    others: dict[str, ReadEventLog] = {}
    for other in replicas:
        with closing(Web(other, asking=asking, token=token)) as web:
            found = parts.read(f"the replica {other} (/api/v1/event-log)", partial(_event_log, web), None)
        if found is not None:
            others[other] = found
    with closing(Web(url, asking=asking, token=token)) as web:
        seen = _read(web, parts, recipes, others)
    return seen if isinstance(seen, Away) else replace(seen, has_evaluate=has_evaluate)


def recipes_in(path: Path) -> list[RecipeInput]:
    """The recipes in the output of ``karrot render ecs-autoscaling``. Raises `ValueError` with a sentence."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [
            msgspec.json.decode(line.partition(RECIPE_MARK)[2], type=RecipeInput)
            for line in lines
            if RECIPE_MARK in line
        ]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not found:
        raise ValueError(f"{path} names no recipe for karrot doctor: print it again with karrot render ecs-autoscaling")
    return [msgspec.structs.replace(each, file=str(path)) for each in found]


def _read(
    web: Web, parts: Parts, recipes: Sequence[RecipeInput], replicas: Mapping[str, ReadEventLog]
) -> KarrotSeen | Away:
    try:
        now = web.read(_Beat, "/heartbeat").time
    except NotTold as error:
        return Away("Karrot", web.url, error.said)
    groups, has_all = parts.read("groups (/api/v1/groups)", partial(read_groups, web), (None, False))
    config = parts.read("settings (/config)", partial(web.read, _Config, "/config"), None)
    reporters = parts.read("reporters (/api/v1/reporters)", partial(web.read, _Reporters, "/api/v1/reporters"), None)
    rejects = parts.read("rejects (/api/v1/rejects)", partial(web.read, _Rejects, "/api/v1/rejects"), None)
    return KarrotSeen(
        url=web.url,
        now=now,
        components=parts.read("readiness (/readyz)", partial(_components, web), {}),
        settings=config.config if config else None,
        reporters=reporters.reporters if reporters else None,
        groups=groups,
        has_all_groups=has_all,
        rejects=rejects.rejects if rejects else None,
        histories=_histories(web, parts, groups or ()),
        samples=parts.read("metrics (/metrics)", partial(read_samples, web, METRICS), ()),
        recipes=recipes,
        event_log=parts.read("event log (/api/v1/event-log)", partial(_event_log, web), None),
        replicas=replicas,
        unread=tuple(parts.unread),
    )


def _event_log(web: Web) -> ReadEventLog | None:
    try:
        return web.read(ReadEventLog, "/api/v1/event-log")
    except NotTold as error:
        if error.status == _MISSING:  # an older Karrot
            return None
        raise


def _components(web: Web) -> Mapping[str, ReadComponent]:
    """The components in the answer of ``/readyz``, with status 200 or 503."""
    answer = web.answer("/readyz")
    if answer.status not in (200, _UNREADY):
        raise NotTold(f"HTTP {answer.status} from /readyz", answer.status)
    return understood(_Readiness, answer.body, "/readyz", answer.status).components


def read_groups(web: Web, cluster: str = "") -> tuple[Sequence[ReadGroup], bool]:
    """The groups of a cluster, or of all clusters without the tests, and whether they are all. Raises `NotTold`."""
    read: list[ReadGroup] = []
    after: str | None = ""
    while after is not None and len(read) < GROUPS_READ:
        page = web.read(_Groups, "/api/v1/groups", {"limit": str(_PAGE), "after": after, "cluster": cluster})
        read += [one for one in page.groups if cluster or one.source != "webhook" or one.cluster not in TEST_CLUSTERS]
        after = page.next
    return tuple(read), after is None


def _histories(web: Web, parts: Parts, groups: Sequence[ReadGroup]) -> Mapping[GroupKey, Sequence[ReadGroupEvent]]:
    """The newest events of the first groups of each cluster."""
    read: dict[GroupKey, Sequence[ReadGroupEvent]] = {}
    by_cluster: dict[str, list[ReadGroup]] = defaultdict(list)
    for each in groups:
        by_cluster[each.cluster].append(each)
    for each in chain.from_iterable(of_cluster[:_HISTORIES] for of_cluster in by_cluster.values()):
        query = {"cluster": each.cluster, "consumer": each.consumer, "limit": str(_EVENTS)}
        history = parts.read("events of groups (/api/v1/group)", partial(_history, web, query), _History(events=()))
        read[GroupKey(each.cluster, each.consumer)] = history.events or ()
    return read


def _history(web: Web, query: Mapping[str, str]) -> _History:
    try:
        return web.read(_History, "/api/v1/group", query)
    except NotTold as error:
        if error.status == _MISSING:  # the group was deleted after the list was read
            return _History(events=())
        raise
