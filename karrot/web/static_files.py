"""Serves the stylesheet, scripts and icon. Their addresses have a hash of the content, so that browsers keep them."""

import mimetypes
from functools import cache
from hashlib import sha256

from flask import Blueprint, Response, abort, request, url_for

from karrot.render import templates_dir

routes = Blueprint("static", __name__)


@cache
def _contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (templates_dir() / "web" / "static").iterdir()}


def _hash_of(name: str) -> str:
    return sha256(_contents()[name]).hexdigest()[:12]


@routes.get("/static/<name>")
def asset(name: str) -> Response:
    if name not in _contents():
        abort(404)
    response = Response(_contents()[name], mimetype=mimetypes.guess_type(name)[0])
    response.set_etag(_hash_of(name))
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    response.make_conditional(request)
    return response


def asset_url(name: str) -> str:
    """Return the address of a file for a page."""
    return url_for("static.asset", name=name, v=_hash_of(name))
