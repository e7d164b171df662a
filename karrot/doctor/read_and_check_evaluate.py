"""Reads the metrics of ``karrot pipeline evaluate`` from its ``--metrics-port``, and checks the age of its verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Final

from karrot.doctor.checks import Said, check, fault, note
from karrot.doctor.reader_helpers import Unread, read_samples
from karrot.http_client import HttpClient, Limits, RequestFailed, WallMs, wall_ms

BATCHES: Final = "karrot_evaluate_batches_total"
LAST_BATCH: Final = "karrot_evaluate_last_batch_timestamp_seconds"
INTERVAL: Final = "karrot_evaluate_interval_seconds"
CATCHING_UP: Final = "karrot_evaluate_catching_up"
# The doctor runs without Spark, so it does not import the module of the pipeline that declares these metrics.


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSeen:
    """The age of evaluate's last batch by the doctor's clock; before the first batch, the age of the process."""

    interval: float
    age: float
    has_batches: bool = True
    is_catching_up: bool = False
    unread: Sequence[Unread] = ()


def read_evaluate(url: str, limits: Limits, *, now_ms: WallMs = wall_ms) -> EvaluateSeen:
    """Read the state of evaluate. Raises `RequestFailed` if evaluate does not answer at the URL."""
    with HttpClient(url, limits) as client:
        found = {each.name: each.value for each in read_samples(client)}
    interval, last = (found.get(name, nan) for name in (INTERVAL, LAST_BATCH))
    if not isfinite(interval + last):
        raise RequestFailed(client.url, f"/metrics has no {INTERVAL}, so it is not evaluate")
    return EvaluateSeen(
        interval=interval,
        age=abs(now_ms() / 1000 - last),
        has_batches=found.get(BATCHES, 0) > 0,
        is_catching_up=found.get(CATCHING_UP) == 1,
    )


@check("KarrotEvaluateBehind", well="evaluate has new verdicts", where="evaluate.md#watch-it")
def last_batch(seen: EvaluateSeen) -> Iterator[Said]:
    """Evaluate has made no verdicts for three intervals, or none since its start."""
    patience = 3 * seen.interval  # as in the alert KarrotEvaluateBehind
    if seen.is_catching_up:
        yield note(
            "evaluate reads records that waited, and judges no group until it has read them",
            f"run karrot doctor again after {patience:g} s; if it takes too long, give Spark more cores",
        )
    elif seen.age > patience:
        none = (
            "the last verdicts of evaluate are" if seen.has_batches else "evaluate has made no verdicts since its start"
        )
        yield fault(
            f"{none} {seen.age:.0f} s {'old' if seen.has_batches else 'ago'}, and the interval is {seen.interval:g} s",
            "look for the reason in the last lines of its log: Karrot, Kafka or the checkpoint cannot be reached, or "
            "a batch takes too long; if it still reads old records of __consumer_offsets, give Spark more cores",
        )
    elif not seen.has_batches:
        yield note(
            f"evaluate started {seen.age:.0f} s ago, and has made no verdicts yet",
            f"run karrot doctor again after {patience:g} s",
        )
