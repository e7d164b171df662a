"""Streaming queries until their end, or until somebody says so: never in the middle of a batch if it can be helped."""

import time
from collections.abc import Sequence
from threading import Event
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run"]

_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 20  # Kubernetes kills after 30


def run(queries: Sequence[StreamingQuery], *, stop: Event, follow: bool) -> None:
    """Wait until all queries have ended; with ``follow``, until one has, or ``stop`` is set. Then end them all.

    A batch under way is waited for, a while. Raises StreamingQueryException for a query that failed.
    """
    enough = all if follow else any
    try:
        while enough(query.isActive for query in queries) and not stop.wait(_LOOK_S):
            pass
        told = stop.is_set()
    finally:
        stop.set()
        for query in queries:
            _end(query)
    failed = [error for query in queries if (error := query.exception()) is not None]
    if failed and not told:
        raise failed[0]


def _end(query: StreamingQuery) -> None:
    for _ in range(round(_PATIENCE_S / _LOOK_S)):
        if not query.isActive or not query.status["isTriggerActive"]:
            break
        time.sleep(_LOOK_S)
    query.stop()
