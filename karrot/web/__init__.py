"""Builds the Flask application. `create_app` connects the routes with the `WebContext` that they use."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import jinja2
from flask import Flask

from karrot.jinja_filters import FILTERS
from karrot.render import templates_dir
from karrot.runbooks_and_remedies import CODES, REFUSED_LATELY_S, runbook_of_failing
from karrot.text import instant
from karrot.web import auth, error_answers, health, metrics, static_files, webhook
from karrot.web.api import routes as api
from karrot.web.context import EXTENSION, Credentials, WebContext, add_headers
from karrot.web.pages import banners, page_cache, runbooks
from karrot.web.pages import routes as pages

__all__ = ["Credentials", "WebContext", "create_app"]

_FIRST_TEMPLATES = ("base.html", "parts.html", "banners.html", "groups.html")
"""The templates of the first page. Their compilation during a request would delay events by a tenth of a second."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_prefix(external_url: str, application: Application) -> Application:
    """Wrap an application for an external URL with a path. Links include the path.

    Requests work with and without the path, because a proxy may remove or keep the path. The path comes only from the
    settings. With a path from a request header, a client could put links into the pages of other readers.
    """
    prefix = urlsplit(external_url).path.rstrip("/")

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["SCRIPT_NAME"] = prefix
        path = environ["PATH_INFO"]
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            environ["PATH_INFO"] = path.removeprefix(prefix) or "/"
        return application(environ, start_response)

    return call


def create_app(context: WebContext) -> Flask:
    """Build the WSGI application for a context. This function reads the templates, but starts no thread or server."""
    app = Flask(__name__, static_folder=None, template_folder=templates_dir() / "web")
    app.url_map.strict_slashes = False  # a URL with a trailing slash is the same route
    app.url_map.merge_slashes = False  # never redirect: Burrow would repeat a POST as GET
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of Flask's default provider
    app.extensions[EXTENSION] = context
    app.extensions[metrics.EXTENSION] = metrics.LastScrape(context)
    app.extensions[page_cache.EXTENSION] = page_cache.PageCache(context.clock)
    _prepare_templates(app, context)
    error_answers.install(app)
    for module in (webhook, metrics, health, api, pages, runbooks, static_files):
        app.register_blueprint(module.routes)
    app.before_request(auth.require_own_site)
    app.after_request(add_headers)
    if context.external_url:
        app.wsgi_app = with_prefix(context.external_url, app.wsgi_app)  # type: ignore[assignment, method-assign]
    return app


def _prepare_templates(app: Flask, context: WebContext) -> None:
    app.jinja_env.undefined = jinja2.StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(FILTERS)
    app.jinja_env.globals.update(
        asset_url=static_files.asset_url,
        version=context.version,
        now=lambda: instant(context.clock.wall_ms()),
        codes=CODES,
        refused_lately_s=REFUSED_LATELY_S,
        runbook_of_failing=runbook_of_failing,
        doubt=lambda: banners.doubt(context),
        outage=lambda: banners.outage(context),
        refusals=lambda: banners.refusals(context),
        shown_state=app.extensions[metrics.EXTENSION].shown,
    )
    for name in _FIRST_TEMPLATES:
        app.jinja_env.get_template(name)
