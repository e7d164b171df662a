"""Reads the metrics and the health of ``karrot pipeline evaluate`` from its ``--metrics-port``."""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from karrot.burrow.client import Asking, WallMs, shown, wall_ms
from karrot.doctor.http_get import NotTold, Parts, Web, read_samples
from karrot.doctor.snapshot_types import Away, EvaluateSeen

BATCHES: Final = "karrot_evaluate_batches_total"
BATCH_SECONDS: Final = "karrot_evaluate_batch_seconds"
LAST_BATCH: Final = "karrot_evaluate_last_batch_timestamp_seconds"
INTERVAL: Final = "karrot_evaluate_interval_seconds"
GROUPS: Final = "karrot_evaluate_groups"
VERDICTS: Final = "karrot_evaluate_verdicts_total"
CATCHING_UP: Final = "karrot_evaluate_catching_up"
UNREADABLE: Final = "karrot_evaluate_unreadable_records_total"
LOG_END_FAILURES: Final = "karrot_evaluate_log_end_failures_total"
# The doctor runs without Spark, so it does not import the module of the pipeline that declares these metrics.

_OTHERS: Final = {
    "karrot_pipeline_": "these are the metrics of karrot pipeline run",
    "karrot_build_info": "these are the metrics of Karrot itself",
}
"""What the beginning of a metric's name says about a program that is not evaluate."""


def read_evaluate(url: str, asking: Asking, *, now_ms: WallMs = wall_ms) -> EvaluateSeen | Away:
    """The state of evaluate, or `Away` if nothing answers at the URL or if another program answers."""
    with closing(Web(url, asking=asking)) as web:
        try:
            samples = read_samples(web)
        except NotTold as error:
            return Away("evaluate", web.url, error.said)

        found = {(each.name, each.labels.get("outcome", "")): each.value for each in samples}
        if (INTERVAL, "") not in found or (LAST_BATCH, "") not in found:
            names = [each.name for each in samples]
            said = (said for start, said in _OTHERS.items() if any(name.startswith(start) for name in names))
            return Away("evaluate", web.url, next(said, f"/metrics has no {INTERVAL}"))
        try:
            return _read(web, found, now_ms() / 1000)
        except (ValueError, OverflowError, OSError) as error:  # a value such as NaN, or a time after the year 9999
            return Away("evaluate", web.url, f"the answer of /metrics is not valid: {error}")


def _read(web: Web, found: Mapping[tuple[str, str], float], now_s: float) -> EvaluateSeen:
    parts = Parts()
    groups = found.get((GROUPS, ""))
    return EvaluateSeen(
        url=web.url,
        now=datetime.fromtimestamp(now_s, UTC),
        interval=found[INTERVAL, ""],
        last_batch=datetime.fromtimestamp(found[LAST_BATCH, ""], UTC),
        batches=int(found.get((BATCHES, ""), 0)),
        batch_seconds=found.get((BATCH_SECONDS, "")),
        groups=None if groups is None else int(groups),
        delivered=int(found.get((VERDICTS, "delivered"), 0)),
        refused=int(found.get((VERDICTS, "refused"), 0)),
        unreadable=int(found.get((UNREADABLE, ""), 0)),
        is_catching_up=found.get((CATCHING_UP, "")) == 1,
        log_end_failures=int(found.get((LOG_END_FAILURES, ""), 0)),
        trouble=parts.read("health (/healthz)", partial(_trouble, web), None),
        unread=tuple(parts.unread),
    )


def _trouble(web: Web) -> str | None:
    """Why the process is not healthy, by the answer of ``/healthz``."""
    answer = web.answer("/healthz")
    if answer.status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        raise NotTold(f"HTTP {answer.status} from /healthz", answer.status)
    return None if answer.status == HTTPStatus.OK else shown(answer.body)
