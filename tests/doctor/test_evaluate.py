"""The doctor reads the port of `karrot pipeline evaluate` over HTTP, and checks the age of its newest batch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from karrot.doctor import Level, Snapshot, examine, look
from karrot.doctor import read_and_check_evaluate as checks
from karrot.doctor.read_and_check_evaluate import EvaluateSeen, read_evaluate
from karrot.http_client import Limits, RequestFailed
from karrot.pipeline.evaluate.job import EvaluatedBatch
from karrot.pipeline.evaluate.metrics_and_health import EVALUATE_METRICS, EvaluateMetrics
from karrot.pipeline.run.step_loop import RunMetrics
from karrot.pipeline.stream.metrics_and_health_server import MetricsPort
from support.doctor_snapshots import evaluate_snapshot, only_finding, passes
from support.manual_clock import ManualClock
from support.servers.scripted_server import http_response, scripted_server

QUICK = Limits(timeout_s=5, pause=lambda _: None)
START_S = 1_800_000_000
NO_EVALUATE = "/metrics has no karrot_evaluate_interval_seconds, so it is not evaluate"


@contextmanager
def serving(metrics: Collector) -> Iterator[str]:
    registry = CollectorRegistry()
    registry.register(metrics)
    with MetricsPort(registry, 0, lambda: None) as port:
        yield f"http://127.0.0.1:{port.port}"


def evaluate_at(url: str, now_s: float = START_S) -> EvaluateSeen:
    return read_evaluate(url, QUICK, now_ms=lambda: int(now_s * 1000))


def test_all_values_of_evaluate_are_read() -> None:
    metrics = EvaluateMetrics("c", ManualClock(wall=START_S * 1000), timedelta(minutes=1))
    metrics.took(EvaluatedBatch((START_S + 60) * 1000, 3, 40, 2, 2.5))
    metrics.took(EvaluatedBatch((START_S + 120) * 1000, 3, 40, 0, 2.5, is_judged=False))
    with serving(metrics) as url:
        seen = evaluate_at(url, START_S + 90)
    assert seen == EvaluateSeen(interval=60, age=30, has_batches=True, is_catching_up=True)


def test_before_the_first_batch_the_age_counts_from_the_start() -> None:
    with serving(EvaluateMetrics("c", ManualClock(wall=START_S * 1000), timedelta(minutes=1))) as url:
        assert evaluate_at(url, START_S + 5) == EvaluateSeen(interval=60, age=5, has_batches=False)


def test_the_doctor_knows_each_metric_by_the_name_that_evaluate_gives_it() -> None:
    names = {name for name in vars(checks).values() if str(name).startswith("karrot_evaluate_")}
    assert len(names) == 4
    assert names <= {metric.name for metric in EVALUATE_METRICS}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(http_response(b'karrot_build_info{version="1"} 1\n'), NO_EVALUATE, id="Karrot"),
        pytest.param(http_response(b""), NO_EVALUATE, id="nothing"),
        pytest.param(http_response(b"<html>"), "the answer is not valid: ", id="a page of HTML"),
        pytest.param(http_response(b"no", "404 Not Found"), "HTTP 404, 'no'", id="no such page"),
        pytest.param(
            http_response(b"karrot_evaluate_interval_seconds 60\nkarrot_evaluate_last_batch_timestamp_seconds NaN\n"),
            NO_EVALUATE,
            id="no number",
        ),
    ],
)
def test_another_server_is_not_taken_for_evaluate(answer: Sequence[bytes], said: str) -> None:
    with scripted_server(answer) as (url, _), pytest.raises(RequestFailed) as raised:
        evaluate_at(url)
    assert raised.value.said.startswith(said)


def test_a_wrong_port_is_one_fault_with_its_remedy() -> None:
    with serving(RunMetrics(started_s=START_S, interval_s=900)) as url:
        found = examine(Snapshot(evaluate=look(evaluate=url, limits=QUICK).evaluate))
    assert [(each.what, each.remedy) for each in found if each.level is Level.FAULT] == [
        (
            f"evaluate cannot be read at {url}: {NO_EVALUATE}",
            "pass the address of its --metrics-port as --evaluate, such as http://evaluate:9308",
        )
    ]


@pytest.mark.parametrize(("age_s", "level"), [(0, "ok"), (180, "ok"), (181, "fault")])
def test_verdicts_older_than_three_intervals_are_a_fault(age_s: float, level: str) -> None:
    assert only_finding(checks.last_batch, evaluate_snapshot(age=age_s))[0] == level


def test_an_old_batch_is_described_with_its_age_and_the_interval() -> None:
    assert passes(checks.last_batch, evaluate_snapshot())
    assert only_finding(checks.last_batch, evaluate_snapshot(age=600.0))[1] == (
        "the last verdicts of evaluate are 600 s old, and the interval is 60 s"
    )


def test_an_evaluate_without_a_batch_may_start_for_three_intervals() -> None:
    assert only_finding(checks.last_batch, evaluate_snapshot(age=50.0, has_batches=False)) == (
        "note",
        "evaluate started 50 s ago, and has made no verdicts yet",
        "run karrot doctor again after 180 s",
    )
    assert only_finding(checks.last_batch, evaluate_snapshot(age=500.0, has_batches=False))[:2] == (
        "fault",
        "evaluate has made no verdicts since its start 500 s ago, and the interval is 60 s",
    )


def test_an_evaluate_that_catches_up_is_a_note() -> None:
    behind = evaluate_snapshot(age=9000.0, is_catching_up=True)
    assert only_finding(checks.last_batch, behind)[:2] == (
        "note",
        "evaluate reads records that waited, and judges no group until it has read them",
    )
