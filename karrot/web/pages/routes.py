"""Serves the pages of all groups, of one group, of reporters and of refused bodies.

``/reporters`` and ``/reporters/<name>`` also have the first Karrot's JSON.
"""

import re
import shlex
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from flask import Blueprint, Response, jsonify, render_template, request
from werkzeug.http import http_date

from karrot import mutes
from karrot.diagnosis.explanations import explain
from karrot.diagnosis.known_facts import gather
from karrot.event import TEST_CLUSTERS, GroupKey, Source
from karrot.eventlog import watch_data_of_groups
from karrot.render import burrow_config
from karrot.runbooks_and_remedies import CODES, WATCH
from karrot.text import instant
from karrot.web.api.answers import last_event, mute_finder, progress, reject_shape, second_opinion
from karrot.web.api.routes import STATUSES, asked_filter, asked_key, asked_number, no_live_group, star_of
from karrot.web.auth import require_reader
from karrot.web.context import WebContext, compress, html_asked, if_readable, web_context
from karrot.web.error_answers import Problem
from karrot.web.pages.banners import service_health
from karrot.web.pages.group_list import (
    BURROW,
    Order,
    badness,
    details_of_groups,
    group_view,
    list_rows,
    ranked_groups,
    seconds_until,
    select,
)
from karrot.web.pages.incident_timeline import BEFORE_MS, timeline
from karrot.web.pages.lag_trend_and_chart_shapes import TRAIL_LENGTH, charts_of_events, charts_of_history
from karrot.web.pages.last_weeks import NotReadable
from karrot.web.pages.page_cache import kept

PAGE_SIZE = 50

_PARTITIONS_SHOWN = 200
_CLUSTERS_SHOWN = 12
_EVENTS_READ = 10_000
_EVENTS_SHOWN = 30
_RANGES = {"1h": 3600, "6h": 21_600, "24h": 86_400}
_INCIDENTS_SHOWN = 10
_REJECTS_SHOWN = 50
_BODY_SHOWN = 400
_MOST_STARS, _MOST_STARS_CHARACTERS = 100, 4096

_SAMPLE = (
    '{"Event":{"Cluster":"CLUSTER","Group":"first-group","ID":"","Start":"0001-01-01T00:00:00Z","Extras":{},"Result":'
    '{"cluster":"CLUSTER","group":"first-group","status":"OK","complete":1,"partitions":[],"partition_count":1,'
    '"maxlag":null,"totallag":42}}}'
).replace("CLUSTER", TEST_CLUSTERS[1])

_SOME_ADDRESS = "http://karrot:5000/burrow"
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")

routes = Blueprint("pages", __name__)
routes.before_request(require_reader)
routes.after_request(compress)


@routes.after_request
def vary(response: Response) -> Response:
    """Say that a page can also be JSON, by ``Accept``."""
    response.vary.add("Accept")
    return response


@routes.get("/")
@kept
def index() -> str:
    """Show all groups, worst first. Before the first event, show instructions for sending events."""
    context, order, page = web_context(), _asked_order(), asked_number("page", 1, 999_999)
    stars, is_starred_only = request.args.getlist("star")[:_MOST_STARS], bool(request.args.get("only"))
    while sum(map(len, stars)) > _MOST_STARS_CHARACTERS:  # each link of the page repeats the stars
        stars.pop()
    wanted = asked_filter((*STATUSES, BURROW))._replace(starred=stars if is_starred_only else None)
    if wanted.text:
        wanted = wanted._replace(details=details_of_groups())
    # After `watch` has stored verdicts, an empty list means that Kafka was unreachable until all groups expired.
    was_watched = WATCH in context.duties and context.log.size().last_seq
    if not (ranked_groups().worst_first or context.log.heard() or was_watched):
        return render_template("welcome.html", **_welcome(context))
    ranked = ranked_groups()
    named, matching = select(ranked, wanted, order)
    first = (page - 1) * PAGE_SIZE
    return render_template(
        "groups.html",
        clusters=ranked.clusters,
        total=len(ranked.worst_first),
        named_groups=named,
        matching=len(matching),
        rows=list(list_rows(context, matching[first : first + PAGE_SIZE])),
        worst=next(list_rows(context, [named.worst] if named.worst else []), None),
        wanted=wanted,
        stars=stars,
        star_of=star_of,
        order=order,
        statuses=STATUSES,
        page=page,
        pages=max(1, -(-len(matching) // PAGE_SIZE)),
        first=first + 1,
        health=service_health(context),
        clusters_shown=_CLUSTERS_SHOWN,
        stale_after=context.stale_after_ms / 1000,
    )


@routes.get("/group")
@kept
def show_group() -> str:
    """Show one group: cause, recent events, history, and queries for its values in other systems."""
    context = web_context()
    key, now_ms = asked_key(), context.clock.wall_ms()
    wanted = request.args.get("range") or "1h"
    if wanted not in _RANGES:
        raise Problem("invalid_field", f"range must be one of {', '.join(_RANGES)}.", path="range")
    state, watched = context.log.group(key), if_readable(lambda: watch_data_of_groups.live(context.log, key), None)
    if state is None:
        if watched is not None:
            return render_template("unjudged.html", key=key, group=watched)
        raise no_live_group(context.log, key)
    known = if_readable(lambda: context.log.listed(state), None)
    listed = sorted(known.partitions if known else (), key=badness)
    complete = known and known.complete
    from_ms = min(now_ms - 1000 * _RANGES[wanted], (state.incident.since_ms or now_ms) - BEFORE_MS)
    events = if_readable(lambda: context.log.since(key, from_ms, _EVENTS_READ), None)
    trail = [each.summary for each in reversed(events or ())]
    muted = if_readable(lambda: [*mutes.read(context.log), *mutes.read(context.log, mutes.ENDED)], [])
    return render_template(
        "group.html",
        row=group_view(context, mute_finder(context)(key), state, trail[-TRAIL_LENGTH:]),
        why=if_readable(lambda: explain(gather(context.log, state), context.effective_settings()), None),
        state=state,
        watched=watched,
        event=known.newest.event if known else None,
        partitions=listed[:_PARTITIONS_SHOWN],
        partitions_more=len(listed) - _PARTITIONS_SHOWN,
        is_readable=events is not None,
        all_listed=state.summary.source is not Source.WEBHOOK or complete is not None,
        listed_at=instant(complete.event.observed_at_ms if complete else None),
        second=second_opinion(known),
        commit_age=seconds_until(now_ms, state.summary.last_commit_ms),
        incident_since=instant(state.incident.since_ms),
        now_ms=now_ms,
        timeline=timeline(trail, state, muted, now_ms),
        pictures=charts_of_events(trail, now_ms / 1000, _RANGES[wanted]),
        ranges=_RANGES,
        wanted=wanted,
        queries=context.queries(*key),
        recent=trail[: -_EVENTS_SHOWN - 1 : -1],
        url=f"{(context.external_url or request.host_url).rstrip('/')}/group?{urlencode(key._asdict())}",
        instant=instant,
        **_past(context, key),
    )


@routes.get("/rejects")
@kept
def show_rejects() -> str:
    """Show the bodies that /burrow refused, newest first."""
    found = if_readable(lambda: web_context().log.rejects(_REJECTS_SHOWN), None)
    kept = [reject_shape(reject) for reject in found or ()]
    remedies = {code: CODES[code].remedy for code in sorted({each.code for each in kept} & CODES.keys())}
    return render_template(
        "rejects.html", rejects=kept, remedies=remedies, body_shown=_BODY_SHOWN, is_readable=found is not None
    )


@routes.get("/reporters")
def list_reporters() -> Response | str:
    """Show the progress of each reporter. The JSON has only the names."""
    context = web_context()
    if not html_asked():
        return jsonify(reporters=list(context.reporters))
    return render_template(
        "reporters.html",
        reporters=progress(context),
        has_replicas=context.log.replica is not None,
        leader=if_readable(context.log.leader, None),
    )


@routes.get("/reporters/<name>")
def show_reporter(name: str) -> Response | str:
    """Show a reporter and its last event. As in the Karrot of 2019, an unknown name gives an empty list."""
    context = web_context()
    if html_asked():
        reporter = next((each for each in progress(context) if each.name == name), None)
        if reporter is None:
            raise Problem("not_found", "No reporter with this name is switched on.")
        unread = object()
        last = if_readable(lambda: last_event(context, name), unread)
        shown = {"is_readable": last is not unread, "last": None if last is unread else last}
        return render_template("reporter.html", reporter=reporter, **shown)
    answer: list[Any] = []
    if name in context.reporters:
        last = last_event(context, name)
        at, body = last and http_date(last.received_at_ms // 1000), last and msgspec.json.decode(last.body, type=_Body)
        answer.append({name: {"last_event_timestamp": at, "last_event": body and body.Event}})
    return Response(msgspec.json.encode({"reporters": answer}), content_type="application/json")


class _Body(msgspec.Struct):
    """A stored body. ``Event`` stays unchanged, with all fields that a newer Burrow adds."""

    Event: msgspec.Raw


def _asked_order() -> Order:
    order = Order.read(request.args.get("sort") or str(Order()))
    if order is None:
        raise Problem(
            "invalid_field", "sort must be a column of the list, or a column with a minus sign before it.", path="sort"
        )
    return order


def _past(context: WebContext, key: GroupKey) -> dict[str, Any]:
    """Query the group's last weeks. Return the error message if the tables cannot be read."""
    past = context.last_weeks(*key)
    if past is None or isinstance(past, NotReadable):
        return {"past": None, "past_unknown": past}
    return {
        "past": charts_of_history(past),
        "past_unknown": None,
        "incidents": past.incidents[:_INCIDENTS_SHOWN],
        "missing_days": past.missing,
    }


def _welcome(context: WebContext) -> dict[str, Any]:
    """Make the instructions. The URL for Burrow's posts is derived from the URL of this page."""
    base = context.external_url or f"{request.scheme}://{request.host}"
    url = f"{base.rstrip('/')}/burrow"
    try:
        # A loopback address is this side of a port-forward. Burrow may be on the other side.
        is_local = context.external_url is None and _LOOPBACK.fullmatch(urlsplit(url).hostname or "") is not None
        config = burrow_config(_SOME_ADDRESS if is_local else url)
    except ValueError:  # the Host header is not a valid address
        url, is_local, config = _SOME_ADDRESS, False, burrow_config(_SOME_ADDRESS)
    user = '-u "$KARROT_BURROW_USERNAME:$KARROT_BURROW_PASSWORD" ' if context.credentials().basic else ""
    return {
        "url": url,
        "some_address": _SOME_ADDRESS if is_local else None,
        "burrow_config": config,
        "curl": f"curl -i {user}{shlex.quote(url)} -d {shlex.quote(_SAMPLE)}",
        "polls_kafka": WATCH in context.duties,
        "health": service_health(context),
    }
