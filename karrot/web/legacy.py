"""Serves the first Karrot's routes with the same JSON: ``/config``, ``/reporters`` and ``/reporters/<name>``."""

from typing import Any

import msgspec
from flask import Blueprint, Response, jsonify, render_template
from werkzeug.http import http_date

from karrot.eventlog.base import StoredEvent
from karrot.web.api.json_bodies import last_event, progress
from karrot.web.auth import require_reader
from karrot.web.context import html_asked, if_readable, web_context
from karrot.web.problems import Problem

routes = Blueprint("legacy", __name__)
routes.before_request(require_reader)


@routes.get("/config")
def config() -> Response:
    """The settings in effect, with redacted secrets."""
    return jsonify(status="success", config=dict(web_context().effective_settings()))


@routes.get("/reporters")
def list_reporters() -> Response:
    """The names of the reporters as JSON. The HTML page shows the progress of each reporter."""
    if html_asked():
        log = web_context().log
        lead = {"has_replicas": log.replica is not None, "leader": if_readable(log.leader, None)}
        return _vary(Response(render_template("reporters.html", reporters=progress(web_context()), **lead)))
    return _vary(jsonify(reporters=list(web_context().reporters)))


@routes.get("/reporters/<name>")
def show_reporter(name: str) -> Response:
    """One reporter with its last event. The JSON of an unknown reporter is an empty list, as in the first Karrot."""
    context = web_context()
    if html_asked():
        reporter = next((each for each in progress(context) if each.name == name), None)
        if reporter is None:
            raise Problem("not_found", "No reporter with this name is switched on.")
        unread = object()
        last = if_readable(lambda: last_event(context, name), unread)
        shown = {"is_readable": last is not unread, "last": None if last is unread else last}
        return _vary(Response(render_template("reporter.html", reporter=reporter, **shown)))
    answer = {"reporters": [{name: _as_ever(last_event(context, name))}] if name in context.reporters else []}
    return _vary(Response(msgspec.json.encode(answer), content_type="application/json"))


class _Envelope(msgspec.Struct):
    """A stored body. Its content is passed on unchanged, also with fields that a newer Burrow adds."""

    Event: msgspec.Raw


def _as_ever(stored: StoredEvent | None) -> dict[str, Any]:
    if stored is None:
        return {"last_event_timestamp": None, "last_event": None}
    return {
        "last_event_timestamp": http_date(stored.received_at_ms // 1000),
        "last_event": msgspec.json.decode(stored.body, type=_Envelope).Event,
    }


def _vary(response: Response) -> Response:
    response.vary.add("Accept")
    return response
