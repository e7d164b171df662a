"""Chooses the form of an answer by the client's Accept headers: HTML or JSON, gzipped or not."""

import gzip

from flask import Response, request

_WORTH_IT = 1400
"""A smaller answer fits into one packet and is not gzipped. Gzip shrinks a table to an eighth of its size."""


def html_asked() -> bool:
    """Whether the client prefers HTML to JSON. ``*/*`` alone is not a preference."""
    accepted = request.accept_mimetypes
    return accepted["text/html"] > accepted["application/json"]


def gzip_accepted() -> bool:
    """Whether the client accepts gzip."""
    return request.accept_encodings["gzip"] > 0


def compress(response: Response) -> Response:
    """Gzip a response that is not gzipped yet. For Flask's ``after_request``."""
    response.vary.add("Accept-Encoding")
    worth_it = (response.content_length or 0) > _WORTH_IT
    if worth_it and not response.content_encoding and gzip_accepted():
        response.set_data(gzip.compress(response.get_data(), compresslevel=1, mtime=0))
        response.content_encoding = "gzip"
    return response
