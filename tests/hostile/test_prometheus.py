"""A real Prometheus scrapes names of every kind completely and finds each by its exact name."""

import json
from pathlib import Path

import pytest

from karrot.reporters.prometheus.group_metrics import label_value
from support.burrow.malformed_bodies import unusual_group_names
from support.burrow.recorded_bodies import recorded_body
from support.prometheus.prometheus_server import Prometheus, prometheus_binary, promql_string
from support.prometheus.promtool import promtool
from support.service.bulk_posts import post_until_stored
from support.service.karrot_service import Service
from support.waiting import wait_for

WARN = recorded_body("karrot_v1.9.5_warn.json")
BINARY = prometheus_binary()

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(BINARY is None, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN"),
]


def verdict(name: str, lag: int) -> bytes:
    return WARN.replace(b'"orders-svc"', json.dumps(name).encode()).replace(b"11020", b"%d" % lag)


def test_a_real_prometheus_reads_every_name_and_finds_it_again(tmp_path: Path) -> None:
    assert BINARY is not None
    lags = {name: 100_000 + number for number, name in enumerate(dict.fromkeys(unusual_group_names()))}
    exported = {
        label_value(name): lag for name, lag in lags.items()
    }  # if two names are the same in Prometheus, the newest wins
    assert len(exported) > 200
    with Service(tmp_path / "data", partition_metrics="true", topic_metrics="true") as service:
        for name, lag in lags.items():
            post_until_stored(service, verdict(name, lag))
        with Prometheus(BINARY, tmp_path / "prometheus", service.port) as prometheus:
            wait_for(lambda: prometheus.number("count(karrot_consumer_lag)") == len(exported))
            stored = prometheus.query("karrot_consumer_lag")
            assert {each["metric"].get("consumer", ""): int(each["value"][1]) for each in stored} == exported
            assert prometheus.label_values("consumer") == exported.keys() - {""}  # Prometheus drops an empty label
            for name, lag in exported.items():
                assert prometheus.number(f"karrot_consumer_lag{{consumer={promql_string(name)}}}") == lag
            lines = service.get("/metrics").body.removesuffix(b"\n").split(b"\n")
            assert prometheus.number("scrape_samples_scraped") == sum(not line.startswith(b"#") for line in lines)
            assert prometheus.number("min_over_time(up[5m])") == 1
        said = prometheus.said.read_text()
        assert "level=error" not in said
        assert "level=warn" not in said


def test_promtool_finds_no_fault_in_the_text_format(tmp_path: Path) -> None:
    with Service(tmp_path / "data", partition_metrics="true", topic_metrics="true") as service:
        for name in unusual_group_names():
            post_until_stored(service, verdict(name, 7))
        text = service.get("/metrics", {"Accept": "text/plain"}).body
    promtool("check", "metrics", text=text)
