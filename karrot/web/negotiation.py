"""Chooses the form of an answer by the client's Accept headers: HTML or JSON, gzipped or not."""

import gzip
from typing import NamedTuple

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


class CompressedPage(NamedTuple):
    """A page in both forms, plain and gzipped. It is compressed once, because it is sent more often than it is made."""

    plain: str
    gzipped: bytes

    @classmethod
    def of(cls, text: str) -> "CompressedPage":
        """Compress a page."""
        return cls(text, _gzipped(text.encode()))

    def response(self) -> Response:
        """The answer in the form that the client of the current request accepts."""
        if not gzip_accepted():
            return Response(self.plain, mimetype="text/html")
        return Response(self.gzipped, mimetype="text/html", headers={"Content-Encoding": "gzip"})


def compress(response: Response) -> Response:
    """Gzip a response that is not gzipped yet. For Flask's ``after_request``."""
    response.vary.add("Accept-Encoding")
    worth_it = (response.content_length or 0) > _WORTH_IT
    if worth_it and not response.content_encoding and gzip_accepted():
        response.set_data(_gzipped(response.get_data()))
        response.content_encoding = "gzip"
    return response


def _gzipped(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1, mtime=0)
