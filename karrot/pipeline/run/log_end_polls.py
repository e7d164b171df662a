"""Polls Kafka for log ends in a thread, next to the turns of ``karrot pipeline run``."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from karrot.pipeline.offsets.log_ends import EndsPoll
from karrot.pipeline.run.run_metrics import RunMetrics
from karrot.pipeline.run.turns import TurnLoop

_log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.2
_LAST_POLL_S: Final = 4


@contextmanager
def polled(poll: EndsPoll | None, turns: TurnLoop) -> Iterator[None]:
    """Poll log ends in a thread, also while a turn runs."""
    if poll is None:
        yield
        return

    def go() -> None:
        while not turns.stop.wait(_LOOK_S):
            try:
                poll.look_if_due()
            except Exception as error:  # noqa: BLE001 (the outermost loop: every error is explained, logged and counted)
                trouble = turns.explain("ends", error)
                turns.metrics.failed("ends", trouble.code)
                _log.error("log ends not written", code=trouble.code, reason=trouble.reason)

    thread = threading.Thread(target=go, name="log ends", daemon=True)
    thread.start()
    try:
        yield
    finally:
        turns.stop.set()
        thread.join(_LAST_POLL_S)


def log_poll(metrics: RunMetrics, summary: object) -> None:
    """Log and count a poll of log ends that Kafka did not answer."""
    if trouble := getattr(summary, "trouble", ""):
        metrics.failed("ends", "source_away")
        _log.warning("log ends not read", code="log_ends_not_read", reason=trouble)
