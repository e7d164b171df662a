"""Serves ``/healthz``, ``/readyz`` and ``/heartbeat``, which need no credentials."""

from datetime import UTC, datetime

import msgspec
from flask import Blueprint, Response

from karrot.api.bodies import Component, Heartbeat, Readiness
from karrot.web.auth import is_reader
from karrot.web.context import web_context

routes = Blueprint("health", __name__)


@routes.get("/healthz")
def alive() -> Response:
    """Answer always 200, to show that the process works."""
    return Response(b'{"status":"alive"}', content_type="application/json")


@routes.get("/heartbeat")
def heartbeat() -> Response:
    """Answer as the first Karrot did."""
    now = datetime.fromtimestamp(web_context().clock.wall_ms() / 1000, UTC)
    beat = Heartbeat("success", "Burrow-reporter is healthy", now)
    return Response(msgspec.json.encode(beat), content_type="application/json")


@routes.get("/readyz")
def ready() -> Response:
    """Answer 503 only if the log is not writable. A reporter's failure must not stop Burrow's events."""
    fault = web_context().log.writable()
    readiness = Readiness("ready" if fault is None else "not ready", _components(fault))
    status = 200 if fault is None else 503
    return Response(msgspec.json.encode(readiness), status=status, content_type="application/json")


def _components(fault: str | None) -> dict[str, Component]:
    # This route needs no authentication, and an error may contain internal names, so only readers see errors.
    context, tells = web_context(), is_reader()
    states = {} if fault else {state.name: state.state for state in context.log.reporters()}
    found = {"log": Component("ok") if fault is None else Component("failing", fault if tells else None)}
    if (server := context.log.database()) and (lags := server.standby_lag_seconds):
        said = ", ".join(f"{name} is {seconds:.1f} s behind" for name, seconds in lags.items())
        found["standbys"] = Component("ok", said if tells else None)
    found |= {f"reporter {name}": Component(states.get(name, "idle")) for name in context.reporters}
    return found | {name: Component(states.get(name, "idle")) for name in context.duties}
