"""Serves ``/healthz``, ``/readyz`` and ``/heartbeat``: whether Karrot is alive and ready, without authentication."""

from datetime import UTC, datetime

import msgspec
from flask import Blueprint, Response

from karrot.web.context import web_context

routes = Blueprint("health", __name__)


class Component(msgspec.Struct, omit_defaults=True):
    """One part of Karrot. ``state`` is ``ok``, ``idle`` or ``failing``; ``detail`` says why, where it may be told."""

    state: str
    detail: str | None = None


class Readiness(msgspec.Struct):
    """Whether events can be stored, and how each component does."""

    status: str
    components: dict[str, Component]


class Heartbeat(msgspec.Struct):
    """The first Karrot's sign of life."""

    status: str
    msg: str
    time: datetime


@routes.get("/healthz")
def alive() -> Response:
    """The process answers."""
    return Response(b'{"status":"alive"}', content_type="application/json")


@routes.get("/heartbeat")
def heartbeat() -> Response:
    """Kept from the first Karrot, word for word."""
    now = datetime.fromtimestamp(web_context().clock.wall_ms() / 1000, UTC)
    beat = Heartbeat("success", "Burrow-reporter is healthy", now)
    return Response(msgspec.json.encode(beat), content_type="application/json")


@routes.get("/readyz")
def ready() -> Response:
    """503 only if the log cannot be written: a destination that is down is no reason to turn Burrow away."""
    fault = web_context().log.writable()
    readiness = Readiness("ready" if fault is None else "not ready", _components(fault))
    status = 200 if fault is None else 503
    return Response(msgspec.json.encode(readiness), status=status, content_type="application/json")


def _components(fault: str | None) -> dict[str, Component]:
    log = Component("ok") if fault is None else Component("failing", fault)
    states = {} if fault else {state.name: state.state for state in web_context().log.reporters()}
    # Errors of destinations may hold names of theirs, and this route is open: the API tells them.
    reporters = {f"reporter {name}": Component(states.get(name, "idle")) for name in web_context().reporters}
    duties = {name: Component(states.get(name, "idle")) for name in web_context().duties}
    return {"log": log} | reporters | duties
