"""Makes the web application over an event log in memory, with every other part real."""

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, NamedTuple

import jinja2
from flask import Flask
from flask.testing import FlaskClient
from jinja2.bccache import Bucket
from werkzeug.wrappers import Request, Response

from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake
from karrot.reporters.prometheus import build, render
from karrot.web import Credentials, WebContext, create_app, webhook
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context

_compiled: dict[tuple[str, str], CodeType | None] = {}


class CompiledTemplates(jinja2.BytecodeCache):
    """Compiled templates by key and content. Hundreds of websites share them, so that tests are fast."""

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = _compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        _compiled[bucket.key, bucket.checksum] = bucket.code


Flask.jinja_options = {"bytecode_cache": CompiledTemplates()}


class Website(NamedTuple):
    """The application's test client and the parts behind it."""

    client: FlaskClient
    log: MemoryEventLog
    clock: ManualClock
    context: WebContext

    def forget(self) -> None:
        """Let every group expire, so that the next example starts empty without a new application."""
        self.clock.advance(self.context.stale_after_ms + 1)


def make_website(**overrides: Any) -> Website:
    """Make a website with default settings, except for ``overrides`` (fields of `WebContext`)."""
    clock = overrides.pop("clock", None) or ManualClock()
    log = overrides.pop("log", None) or MemoryEventLog(clock)
    collectors = {"prometheus": build(make_context("prometheus", log=log)).collector(log)}
    fields: dict[str, Any] = {
        "intake": Intake(log, clock),
        "log": log,
        "clock": clock,
        "render_metrics": lambda accept, names: render(collectors, accept, names),
        "effective_settings": lambda: {"KARROT_REPORTERS": "prometheus,stdout", "KARROT_API_TOKEN": "********"},
        "reporters": ("prometheus", "stdout"),
        "version": "2.0.0",
    }
    if isinstance(credentials := overrides.get("credentials"), Credentials):
        overrides["credentials"] = lambda: credentials
    context = WebContext(**(fields | overrides))
    app = create_app(context)
    app.wsgi_app = with_events(context, app.wsgi_app)  # type: ignore[method-assign]
    return Website(app.test_client(), log, clock, context)


def with_events(context: WebContext, application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Take events before Flask, as Karrot's server does, but without a socket."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        if request.method not in webhook.METHODS or request.path.rstrip("/") not in webhook.paths(context):
            return application(environ, start_response)
        try:
            headers = {name.lower(): value for name, value in request.headers}
            webhook.admit(context, headers)
            webhook.begin(context, headers, request.get_data()).wait()
            answer = webhook.ACCEPTED
        except Exception as error:  # noqa: BLE001 - as the server's outermost handler of an event
            answer = webhook.refusal(context, error, request.remote_addr or "")
        return Response(answer.body, answer.status, answer.headers)(environ, start_response)

    return call
