"""The doctor reads the port of `karrot pipeline evaluate` over HTTP, with the real port and metrics."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from karrot.burrow.client import Asking
from karrot.doctor import Level, Snapshot, examine, look, read_evaluate
from karrot.doctor.snapshot_types import Away, EvaluateSeen, Unread
from karrot.pipeline.evaluate.evaluate_metrics import EVALUATE_METRICS, EvaluateMetrics
from karrot.pipeline.evaluate.job import EvaluatedBatch
from karrot.pipeline.evaluate.verdict_delivery import RefusedVerdict, VerdictDelivery
from karrot.pipeline.run.turns import RunMetrics
from karrot.pipeline.stream.metrics import MetricsPort
from support.servers.scripted_server import http_response, scripted_server

QUICK = Asking(timeout_s=5, pause=lambda _: None)
START_S = 1_800_000_000
TOO_LARGE = RefusedVerdict("k", "Karrot", "billing", "too_large", "{")


@contextmanager
def serving(metrics: Collector, health: Callable[[], str | None] = lambda: None) -> Iterator[str]:
    registry = CollectorRegistry()
    registry.register(metrics)
    with MetricsPort(registry, 0, health) as port:
        yield f"http://127.0.0.1:{port.port}"


def evaluate_at(url: str, now_s: float = START_S) -> EvaluateSeen | Away:
    return read_evaluate.read_evaluate(url, QUICK, now_ms=lambda: int(now_s * 1000))


def test_all_values_of_evaluate_are_read() -> None:
    metrics = EvaluateMetrics(cluster="c", started_s=START_S, interval_s=60)
    metrics.took(EvaluatedBatch((START_S + 60) * 1000, 3, 40, VerdictDelivery(2, [TOO_LARGE]), 2.5, 7))
    metrics.took(EvaluatedBatch((START_S + 120) * 1000, 3, 40, VerdictDelivery(0), 2.5, is_judged=False))
    metrics.log_ends_failed()
    with serving(metrics) as url:
        seen = evaluate_at(url, START_S + 90)
    assert seen == EvaluateSeen(
        url=url,
        now=datetime.fromtimestamp(START_S + 90, UTC),
        interval=60,
        last_batch=datetime.fromtimestamp(START_S + 60, UTC),
        batches=1,
        batch_seconds=2.5,
        groups=3,
        delivered=2,
        refused=1,
        unreadable=7,
        is_catching_up=True,
        log_end_failures=1,
    )


def test_an_evaluate_before_its_first_batch_has_no_groups_and_no_duration() -> None:
    with serving(EvaluateMetrics(cluster="c", started_s=START_S, interval_s=60)) as url:
        seen = evaluate_at(url, START_S + 5)
    assert isinstance(seen, EvaluateSeen)
    assert (seen.batches, seen.batch_seconds, seen.groups, seen.age) == (0, None, None, 5)


def test_the_doctor_knows_each_metric_by_the_name_that_evaluate_gives_it() -> None:
    names = {name for name in vars(read_evaluate).values() if str(name).startswith("karrot_evaluate_")}
    assert {metric.name for metric in EVALUATE_METRICS} - names == {"karrot_evaluate_partitions"}
    assert names <= {metric.name for metric in EVALUATE_METRICS}


def test_the_reason_at_healthz_is_read() -> None:
    metrics = EvaluateMetrics(cluster="c", started_s=START_S, interval_s=60)
    with serving(metrics, lambda: "Spark has ended") as url:
        seen = evaluate_at(url)
    assert isinstance(seen, EvaluateSeen)
    assert seen.trouble == "'Spark has ended'"


def test_a_health_that_cannot_be_read_is_noted() -> None:
    text = "karrot_evaluate_interval_seconds 60\nkarrot_evaluate_last_batch_timestamp_seconds 1800000000\n"
    with scripted_server(http_response(text.encode()), http_response(b"gone", "410 Gone")) as (url, _):
        seen = evaluate_at(url)
    assert isinstance(seen, EvaluateSeen)
    assert seen.unread == (Unread("health (/healthz)", "HTTP 410 from /healthz"),)


def test_the_port_of_another_command_is_named() -> None:
    with serving(RunMetrics(started_s=START_S, interval_s=900)) as url:
        assert evaluate_at(url) == Away("evaluate", url, "these are the metrics of karrot pipeline run")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(
            http_response(b'karrot_build_info{version="1"} 1\n'), "these are the metrics of Karrot itself", id="Karrot"
        ),
        pytest.param(http_response(b"up 1\n"), "/metrics has no karrot_evaluate_interval_seconds", id="a node"),
        pytest.param(http_response(b""), "/metrics has no karrot_evaluate_interval_seconds", id="nothing"),
        pytest.param(http_response(b"<html>"), "the answer of /metrics is not valid: ", id="a page of HTML"),
        pytest.param(http_response(b"no", "404 Not Found"), "HTTP 404 from /metrics: 'no'", id="no such page"),
        pytest.param(
            http_response(b"karrot_evaluate_interval_seconds 60\nkarrot_evaluate_last_batch_timestamp_seconds NaN\n"),
            "the answer of /metrics is not valid: ",
            id="no number",
        ),
        pytest.param(
            http_response(b"karrot_evaluate_interval_seconds 60\nkarrot_evaluate_last_batch_timestamp_seconds 1e300\n"),
            "the answer of /metrics is not valid: ",
            id="a time that does not exist",
        ),
    ],
)
def test_another_server_is_not_taken_for_evaluate(answer: Sequence[bytes], said: str) -> None:
    with scripted_server(answer) as (url, _):
        seen = evaluate_at(url)
    assert isinstance(seen, Away)
    assert seen.said.startswith(said)


def test_a_wrong_port_is_one_fault_with_its_remedy() -> None:
    with serving(RunMetrics(started_s=START_S, interval_s=900)) as url:
        found = examine(Snapshot(evaluate=look(evaluate=url, asking=QUICK).evaluate))
    assert [(each.what, each.remedy) for each in found if each.level is Level.FAULT] == [
        (
            f"evaluate cannot be read at {url}: these are the metrics of karrot pipeline run",
            "pass the address of its --metrics-port as --evaluate, such as http://evaluate:9308",
        )
    ]
