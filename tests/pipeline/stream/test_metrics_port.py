"""The port with the metrics of ``karrot pipeline run``, over real sockets."""

from datetime import timedelta
from threading import Event
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry

from karrot.pipeline.run.step_loop import LEASE_HELD_BY_OTHER, PIPELINE_METRICS, TURNS, RunMetrics, TurnLoop
from karrot.pipeline.stream.metrics_and_health_server import MetricsPort
from support.manual_clock import ManualClock

_FIRST = """\
# HELP karrot_pipeline_turns_total Turns by outcome. done: no step failed. failed: a step failed, and the next turn \
tries again. stopped: the process had to end.
# TYPE karrot_pipeline_turns_total counter
karrot_pipeline_turns_total{outcome="done"} 0.0
karrot_pipeline_turns_total{outcome="failed"} 1.0
karrot_pipeline_turns_total{outcome="stopped"} 0.0
"""


def _get(port: int, path: str, accept: str = "") -> tuple[int, str, str]:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept}), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def test_a_scrape_has_every_declared_metric() -> None:
    registry = CollectorRegistry()
    metrics = RunMetrics(started_s=100, interval_s=900)
    registry.register(metrics)
    metrics.failed("events", "lease_held")
    metrics.add(TURNS, 1, "failed")
    metrics.set(LEASE_HELD_BY_OTHER, 1)
    with MetricsPort(registry, 0, lambda: None) as served:
        status, kind, text = _get(served.port, "/metrics")
        openmetrics = _get(served.port, "/metrics", "application/openmetrics-text;version=1.0.0")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text.startswith(_FIRST)
    assert [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")] == [
        metric.name for metric in PIPELINE_METRICS
    ]
    assert "karrot_pipeline_lease_held_by_other 1.0\n" in text
    assert "karrot_pipeline_last_success_timestamp_seconds 100.0\n" in text
    assert "karrot_pipeline_newest_event_timestamp_seconds " not in [line[:47] for line in text.splitlines()]
    assert "# UNIT karrot_pipeline_newest_event_timestamp_seconds seconds\n" in openmetrics[2]
    assert openmetrics[2].endswith("# EOF\n")


def test_the_probe_says_why_the_process_is_not_healthy() -> None:
    problem: list[str] = []
    with MetricsPort(CollectorRegistry(), 0, lambda: problem[-1] if problem else None) as served:
        assert _get(served.port, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
        problem.append("Spark has ended")
        assert _get(served.port, "/healthz") == (503, "text/plain; charset=utf-8", "Spark has ended\n")
        assert _get(served.port, "/") == (404, "text/plain; charset=utf-8", "this port has /metrics and /healthz\n")


def test_a_port_in_use_is_refused() -> None:
    with MetricsPort(CollectorRegistry(), 0, lambda: None) as served, pytest.raises(OSError, match="in use"):
        MetricsPort(CollectorRegistry(), served.port, lambda: None)


def test_the_process_is_unhealthy_if_a_turn_takes_too_long_or_spark_has_ended() -> None:
    clock, limit = ManualClock(), timedelta(hours=6)
    turns = TurnLoop(timedelta(minutes=15), clock, RunMetrics(started_s=0, interval_s=900), Event())
    assert turns.problem(limit) is None, "Spark starts"
    turns.started_ms = clock.boot_ms()
    clock.advance(6 * 3_600_000 + 1)
    assert turns.problem(limit) == "a turn has been running for more than 6 h"
    turns.started_ms = None
    assert turns.problem(limit) is None
    turns.is_alive = lambda: False
    assert turns.problem(limit) == "Spark has ended"
