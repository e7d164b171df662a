"""The pages: every group, and one group. Plain HTML, rendered here, whole without a script."""

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from flask import Blueprint, render_template, request

from karrot.event import PartitionLag, Source, Status
from karrot.eventlog.base import GroupState, StoredEvent
from karrot.web.api import asked_filter, asked_key
from karrot.web.guard import require_reader
from karrot.web.listing import STATUSES, overview
from karrot.web.problems import CODES, Problem
from karrot.web.rejects import reject_shape
from karrot.web.shapes import event_shape, instant
from karrot.web.site import Site, site

__all__ = ["PAGE_SIZE", "routes"]

PAGE_SIZE = 50

_PARTITIONS_SHOWN = 200
_CLUSTERS_SHOWN = 12
_EVENTS_SHOWN = 30
_REJECTS_SHOWN = 50
_BODY_SHOWN = 400

_SAMPLE = (
    '{"Event":{"Cluster":"try","Group":"first-group","ID":"","Start":"0001-01-01T00:00:00Z","Extras":{},"Result":'
    '{"cluster":"try","group":"first-group","status":"OK","complete":1,"partitions":[],"partition_count":1,'
    '"maxlag":null,"totallag":42}}}'
)

_SOME_ADDRESS = "http://karrot:5000/burrow"

routes = Blueprint("pages", __name__)
routes.before_request(require_reader)


class Heard(NamedTuple):
    """When a cluster's Burrow was last heard; ``silent`` if that is too long ago."""

    cluster: str
    seconds: float
    silent: bool


@routes.get("/")
def index() -> str:
    """Every group, the worst first; with no group at all, how to get one."""
    here = site()
    wanted, page = asked_filter(), _asked_page()
    found = overview(here.log, wanted, page=page, size=PAGE_SIZE)
    if not found.total:
        return render_template("welcome.html", **_welcome(here))
    heard = _heard(here)
    return render_template(
        "groups.html",
        found=found,
        wanted=wanted,
        statuses=STATUSES,
        page=page,
        pages=max(1, -(-found.matching // PAGE_SIZE)),
        first=(page - 1) * PAGE_SIZE + 1,
        ages=_ages(here, found.rows),
        incident_ages=_incident_ages(here, found.rows),
        heard=heard[:_CLUSTERS_SHOWN],
        heard_more=len(heard) - _CLUSTERS_SHOWN,
        stale_after=here.stale_after_ms / 1000,
    )


@routes.get("/group")
def show_group() -> str:
    """One group: its numbers, its partitions, its recent events."""
    here = site()
    key = asked_key()
    state = here.log.group(key)
    if state is None:
        raise Problem("not_found", "No live consumer group has this name: it was deleted, or nothing was heard of it.")
    newest = here.log.event(state.seq)
    listed = _worst_partitions(newest)
    return render_template(
        "group.html",
        state=state,
        event=newest.event if newest else None,
        partitions=listed[:_PARTITIONS_SHOWN],
        partitions_more=len(listed) - _PARTITIONS_SHOWN,
        all_listed=state.summary.source is not Source.WEBHOOK,
        age=_ages(here, [state])[0],
        commit_age=_seconds_since(here, state.summary.last_commit_ms),
        incident_age=_incident_ages(here, [state])[0],
        incident_since=instant(state.incident.since_ms),
        events=[event_shape(stored) for stored in here.log.recent(key, _EVENTS_SHOWN)],
    )


@routes.get("/rejects")
def show_rejects() -> str:
    """What /burrow refused, the newest first."""
    kept = [reject_shape(reject) for reject in site().log.rejects(_REJECTS_SHOWN)]
    remedies = {code: CODES[code].remedy for code in sorted({each.code for each in kept} & CODES.keys())}
    return render_template("rejects.html", rejects=kept, remedies=remedies, body_shown=_BODY_SHOWN)


def _asked_page() -> int:
    text = request.args.get("page") or "1"
    if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text)):  # noqa: PLR2004
        raise Problem("invalid_field", "page is a whole number from 1.", path="page")
    return int(text)


def _welcome(here: Site) -> dict[str, Any]:
    url, config = _address_and_config(here)
    user = '-u "$KARROT_BURROW_USERNAME:$KARROT_BURROW_PASSWORD" ' if here.credentials.basic else ""
    return {"url": url, "burrow_config": config, "curl": f"curl -i {user}{shlex.quote(url)} -d {shlex.quote(_SAMPLE)}"}


def _address_and_config(here: Site) -> tuple[str, str]:
    """Where Burrow should post, by the address this page was asked at, and the configuration that says so."""
    base = here.external_url or f"{request.scheme}://{request.host}"
    url = f"{base.rstrip('/')}/burrow"
    try:
        return url, here.burrow_config(url)
    except ValueError:  # a Host header that is no address
        return _SOME_ADDRESS, here.burrow_config(_SOME_ADDRESS)


def _heard(here: Site) -> list[Heard]:
    ages = {cluster: _seconds_since(here, heard_ms) or 0.0 for cluster, heard_ms in here.log.heard().items()}
    silent_after = here.stale_after_ms / 1000
    heard = [Heard(cluster, seconds, seconds > silent_after) for cluster, seconds in ages.items()]
    return sorted(heard, key=lambda one: (not one.silent, one.cluster))


def _ages(here: Site, states: Sequence[GroupState]) -> list[float]:
    # By the log's own time: a clock that was set makes no event younger.
    now = here.log.log_time_ms()
    return [max(0, now - state.log_time_ms) / 1000 for state in states]


def _incident_ages(here: Site, states: Sequence[GroupState]) -> list[float | None]:
    return [_seconds_since(here, state.incident.since_ms if state.incident.open_id else None) for state in states]


def _seconds_since(here: Site, epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else max(0, here.clock.wall_ms() - epoch_ms) / 1000


def _worst_partitions(newest: StoredEvent | None) -> list[PartitionLag]:
    """The partitions of an event, the worst first; that with the largest lag is shown even if it is not listed."""
    if newest is None:
        return []
    event = newest.event
    listed = {(partition.topic, partition.partition): partition for partition in event.partitions}
    if event.max_lag is not None:
        listed.setdefault((event.max_lag.topic, event.max_lag.partition), event.max_lag)
    return sorted(listed.values(), key=_badness)


def _badness(partition: PartitionLag) -> tuple[bool, int, str, int]:
    lag = partition.current_lag
    return partition.status is Status.OK, 0 if lag is None else -1 - lag, partition.topic, partition.partition
