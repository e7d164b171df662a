"""Serves ``/metrics`` for Prometheus."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from flask import Blueprint, Response, request

from karrot.web.auth import require_reader
from karrot.web.context import gzip_accepted, web_context
from karrot.web.last_scrape import last_scrape

_FASTEST = 1
"""The gzip level. A scrape has a deadline, so speed matters more than size."""

_GZIP_WINDOW = 31
"""zlib's ``wbits`` for the largest window with a gzip header."""

routes = Blueprint("metrics", __name__)


@routes.before_request
def _authorize() -> None:
    if web_context().metrics_auth:
        require_reader()


@routes.get("/metrics")
def metrics() -> Response:
    """Answer the metrics in text format or OpenMetrics, by ``Accept``. ``name[]`` limits the sample names."""
    content_type, exposition = web_context().render_metrics(
        request.headers.get("Accept", ""), request.args.getlist("name[]")
    )
    made = iter((exposition,) if isinstance(exposition, bytes) else exposition)
    chunks: Iterator[bytes] = chain([next(made, b"")], made)  # a failure in the first chunk is answered as a problem
    response = Response(content_type=content_type)
    response.vary.update(("Accept", "Accept-Encoding"))
    if gzip_accepted():
        response.content_encoding = "gzip"
        chunks = gzipped(chunks)
    response.response = chunks
    if request.headers.get("User-Agent") != "karrot":  # a command of Karrot, which shows no one who scrapes
        last_scrape().note()
    return response


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress the chunks as one gzip member."""
    squeeze = zlib.compressobj(_FASTEST, wbits=_GZIP_WINDOW)
    for chunk in chunks:
        if squeezed := squeeze.compress(chunk):
            yield squeezed
    yield squeeze.flush()
