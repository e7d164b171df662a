"""The examples of an OpenTelemetry Collector are complete, and scrape what Karrot exports."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from karrot.settings.options import Settings
from karrot.telemetry import METRICS
from support.web.website import make_website

EXAMPLES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).resolve().parents[1] / "examples" / "opentelemetry").glob("*.yaml"))
}
CLOUDWATCH, OTLP = EXAMPLES["collector"], EXAMPLES["collector-otlp"]

each_example = pytest.mark.parametrize("collector", EXAMPLES.values(), ids=EXAMPLES)


def scrape(collector: dict[str, Any]) -> dict[str, Any]:
    [found] = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert isinstance(found, dict)
    return found


@each_example
def test_the_pipeline_uses_every_part_that_is_defined(collector: dict[str, Any]) -> None:
    [pipeline] = collector["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert pipeline[kind] == [*collector[kind]]
    assert collector["service"].get("extensions", []) == [*collector.get("extensions", {})]


@each_example
def test_karrots_own_labels_are_kept(collector: dict[str, Any]) -> None:
    assert scrape(collector)["honor_labels"] is True


@each_example
def test_the_scraped_address_is_that_of_the_metrics(collector: dict[str, Any]) -> None:
    [target] = scrape(collector)["static_configs"]
    assert target["targets"] == [f"karrot:{Settings().bind.port}"]
    answer = make_website().client.get(scrape(collector).get("metrics_path", "/metrics"))
    assert answer.status_code == 200
    assert b"karrot_build_info" in answer.data


def test_the_address_is_in_the_region_that_signs() -> None:
    region = CLOUDWATCH["extensions"]["sigv4auth"]["region"]
    otlp = CLOUDWATCH["exporters"]["otlphttp"]
    assert otlp["metrics_endpoint"] == f"https://monitoring.{region}.amazonaws.com/v1/metrics"
    assert otlp["auth"]["authenticator"] in CLOUDWATCH["extensions"]


def test_for_cloudwatch_the_metrics_of_groups_are_kept_and_those_about_karrot_are_left_out() -> None:
    [rule] = scrape(CLOUDWATCH)["metric_relabel_configs"]
    kept = {metric.name for metric in METRICS if re.fullmatch(rule["regex"], metric.name)}
    of_groups = {metric.name for metric in METRICS if metric.name.startswith("karrot_consumer_")}
    assert kept == of_groups | {"karrot_last_event_timestamp_seconds"}
    assert of_groups


def test_for_any_other_backend_the_names_are_those_of_the_reference() -> None:
    assert scrape(OTLP)["scrape_protocols"] == ["PrometheusText0.0.4"]


def test_for_any_other_backend_every_metric_is_kept_and_sent_after_the_limit_of_memory() -> None:
    assert "metric_relabel_configs" not in scrape(OTLP)
    [pipeline] = OTLP["service"]["pipelines"].values()
    assert pipeline["processors"][0] == "memory_limiter"
