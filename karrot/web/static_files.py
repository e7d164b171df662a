"""Serves the stylesheet, script and icon from memory. Each name has a hash of the content, so files never expire."""

import mimetypes
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, Response, abort, current_app, request

EXTENSION = "karrot-assets"

_FOR_EVER = "public, max-age=31536000, immutable"

routes = Blueprint("static", __name__)


class Assets(NamedTuple):
    """The static files. ``names`` maps file names to served names. ``contents`` maps served names to contents."""

    names: dict[str, str]
    contents: dict[str, bytes]


def load(folder: Path) -> Assets:
    """Read every file of a folder."""
    assets = Assets({}, {})
    for path in sorted(each for each in folder.iterdir() if each.is_file()):
        content = path.read_bytes()
        name = f"{path.stem}.{sha256(content).hexdigest()[:12]}{path.suffix}"
        assets.names[path.name] = name
        assets.contents[name] = content
    return assets


@routes.get("/static/<name>")
def asset(name: str) -> Response:
    assets: Assets = current_app.extensions[EXTENSION]
    if name not in assets.contents:
        abort(404)
    response = Response(assets.contents[name], mimetype=mimetypes.guess_type(name)[0])
    response.set_etag(name)
    response.headers["Cache-Control"] = _FOR_EVER
    response.make_conditional(request)
    return response
