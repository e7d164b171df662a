"""Every query of the Grafana dashboards gives data from a real Prometheus that scrapes the demo."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from karrot import telemetry
from support.prometheus.grafana_dashboards import (
    DASHBOARDS,
    PanelQuery,
    annotations,
    panel_queries,
    substitute_variables,
)
from support.prometheus.metrics_server import serve_metrics
from support.prometheus.prometheus_server import Prometheus, prometheus_binary
from support.service.karrot_service import Service
from support.waiting import wait_for

BINARY = prometheus_binary() or ""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not BINARY, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN"),
]

# Metrics that need Kafka, PostgreSQL or a failing reporter: their samples are made here from the register of metrics.
CANNED = [
    each
    for each in telemetry.METRICS
    if re.search(r"WATCH_BOOTSTRAP|that Kafka did not tell|only with PostgreSQL", each.help)
    or each.name.endswith("failures_total")
]
JOB = """\
- job_name: %s
  scrape_interval: 1s
  metrics_path: %s
  static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def canned() -> str:
    """Return a sample of each metric in `CANNED`."""
    lines = []
    for metric in CANNED:
        labels = ",".join(f'{label}="canned"' for label in metric.labels)
        lines.append(f"# TYPE {metric.name} {metric.kind}\n{metric.name}{{{labels}}} 5\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the demo; return the addresses of Karrot and of the simulated Burrow."""
    said = tmp_path_factory.mktemp("demo") / "said.txt"
    with said.open("wb") as out:
        command = [sys.executable, "-m", "karrot", "demo", "--speed", "20", "--port", "0"]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(lambda: "Ctrl-C stops everything" in said.read_text() or process.poll() is not None, 60)
        yield said.read_text()
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def prometheus(demo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes the demo and a second Karrot.

    The second Karrot gets its events from the demo's Burrow and has the features on that the demo has off.
    """
    directory = tmp_path_factory.mktemp("boards")
    [port] = re.findall(r"page +http://127\.0\.0\.1:(\d+)/", demo)
    [burrow] = re.findall(r"--burrow (\S+)", demo)
    with (
        Service(
            directory / "data",
            workers="1",
            reporters="prometheus,archive",
            archive_segment_seconds="1",
            burrow_url=burrow,
            resync_interval="10s",
            topic_metrics="true",
            partition_metrics="true",
        ) as second,
        serve_metrics({"/canned": canned()}) as canned_port,
        Prometheus(
            BINARY,
            directory / "prometheus",
            int(port),
            jobs=JOB % ("karrot-2", "/metrics", second.port) + JOB % ("canned", "/canned", canned_port),
        ) as running,
    ):
        wait_for(lambda: running.number("count(up == 1)") == 3)
        second.post(b"no event")
        yield running


def choices(board: str, prometheus: Prometheus) -> list[dict[str, str]]:
    """Return the choices on a dashboard; on the dashboard of one group, each group, those with incidents first."""
    if board != "group":
        return [{"cluster": ".*", "consumer": ".*", "job": ".+", "instance": ".+"}]
    found = prometheus.query(
        "sort_desc(max by (cluster, consumer) (karrot_consumer_status_code or 0 * karrot_consumer_members))"
    )
    return [each["metric"] for each in found]


def has_data(query: PanelQuery, prometheus: Prometheus) -> bool:
    in_a_hurry = query.expr.replace(":1m]", ":1s]")
    return any(
        prometheus.query(substitute_variables(in_a_hurry, DASHBOARDS[query.board], chosen))
        for chosen in choices(query.board, prometheus)
    )


def without_data(queries: Iterable[PanelQuery], prometheus: Prometheus) -> list[PanelQuery]:
    """Return the queries that give no data for a minute and a half."""
    left = list(queries)

    def is_none_left() -> bool:
        left[:] = [each for each in left if not has_data(each, prometheus)]
        return not left

    with suppress(AssertionError):
        wait_for(is_none_left, 90)
    return left


def test_every_open_panel_shows_data_of_the_demo_alone(prometheus: Prometheus) -> None:
    goes_wrong = re.compile(r"failures_total|dropped_total|_kind.* == 2|events_rejected_total.*\nand", re.DOTALL)
    open_at_once = [each for each in panel_queries() if not each.folded and not goes_wrong.search(each.expr)]
    assert len(open_at_once) > 60
    of_the_demo = [each._replace(expr=each.expr.replace('job=~"$job"', 'job="karrot"')) for each in open_at_once]
    assert without_data(of_the_demo, prometheus) == []


def test_every_panel_shows_data_if_all_features_are_on(prometheus: Prometheus) -> None:
    may_be_empty = re.compile(r"reporter_dropped_total|lag_seconds_kind.* == 2")  # no value is unknown, no age a bound
    assert without_data([each for each in panel_queries() if not may_be_empty.search(each.expr)], prometheus) == []


def test_an_incident_is_marked_at_its_start_time(prometheus: Prometheus) -> None:
    board = DASHBOARDS["overview"]
    [incidents] = annotations(board)
    assert incidents["useValueForTime"] is True
    query = substitute_variables(incidents["expr"], board)
    wait_for(lambda: bool(prometheus.query(query)), 90)
    for each in prometheus.query(query):
        asked_at, began_at_ms = map(float, each["value"])
        assert abs(asked_at - began_at_ms / 1000) < 3600
