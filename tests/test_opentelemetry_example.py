"""The example of an OpenTelemetry Collector is complete, and keeps the metrics of groups."""

import re
from pathlib import Path

import yaml

from karrot.telemetry import METRICS

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "opentelemetry" / "collector.yaml"
COLLECTOR = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
[SCRAPE] = COLLECTOR["receivers"]["prometheus"]["config"]["scrape_configs"]


def test_the_pipeline_uses_every_part_that_is_defined() -> None:
    [pipeline] = COLLECTOR["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert pipeline[kind] == [*COLLECTOR[kind]]
    assert COLLECTOR["service"]["extensions"] == [*COLLECTOR["extensions"]]
    assert COLLECTOR["exporters"]["otlphttp"]["auth"]["authenticator"] in COLLECTOR["extensions"]


def test_the_address_is_in_the_region_that_signs() -> None:
    region = COLLECTOR["extensions"]["sigv4auth"]["region"]
    assert (
        COLLECTOR["exporters"]["otlphttp"]["metrics_endpoint"]
        == f"https://monitoring.{region}.amazonaws.com/v1/metrics"
    )


def test_karrots_own_labels_are_kept() -> None:
    assert SCRAPE["honor_labels"] is True


def test_the_metrics_of_groups_are_kept_and_those_about_karrot_are_left_out() -> None:
    [rule] = SCRAPE["metric_relabel_configs"]
    kept = {metric.name for metric in METRICS if re.fullmatch(rule["regex"], metric.name)}
    of_groups = {metric.name for metric in METRICS if metric.name.startswith("karrot_consumer_")}
    assert kept == of_groups | {"karrot_last_event_timestamp_seconds"}
    assert of_groups
