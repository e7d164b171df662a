"""The KEDA and HPA examples scale consumers on Kubernetes."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from karrot import telemetry
from support.prometheus.promtool import input_series, promtool, selected_metrics
from support.prometheus.scaling_queries import EXAMPLES, example, scaling_queries

KEDA = sorted(path.name for path in (EXAMPLES / "keda").glob("scaledobject*.yaml"))
LABELS = {metric.name: set(metric.labels) for metric in telemetry.METRICS}
ORDERS = 'cluster="prod-eu", consumer="orders-svc"'


def test_each_query_gives_one_value_for_any_scrape_job_and_none_for_an_unknown_lag(tmp_path: Path) -> None:
    scraped = [
        f'{metric}{{{ORDERS}, instance="{instance}"}} {values}'
        for metric in ("karrot_consumer_scalable_lag", "karrot_consumer_lag_seconds")
        for instance, values in (("one", "0+10x10 stale"), ("two", "0+9x10 stale"))
    ]
    others = [line.replace("orders-svc", "orders").replace("+10x10 stale", "+99x40") for line in scraped]
    queries = [
        {"expr": query, "eval_time": at, "exp_samples": samples}
        for name, query in scaling_queries().items()
        for at, samples in (
            ("10m", [{"labels": "" if name != "hpa.yaml" else f"{{{ORDERS}}}", "value": 100}]),
            ("30m", []),
        )
    ]
    test = {"interval": "1m", "input_series": input_series(scraped + others), "promql_expr_test": queries}
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}, width=1000))
    promtool("test", "rules", file)


def test_the_queries_use_only_metrics_that_karrot_exports() -> None:
    for query in scaling_queries().values():
        for metric, labels in selected_metrics(query):
            assert labels <= LABELS[metric]


@pytest.mark.parametrize("name", KEDA)
def test_keda_keeps_the_number_of_replicas_while_the_lag_is_unknown(name: str) -> None:
    scaled = example(f"keda/{name}")
    assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    [trigger] = scaled["spec"]["triggers"]
    if trigger["type"] == "prometheus":
        assert trigger["metadata"]["ignoreNullValues"] == "false"
    else:  # for metrics-api, a value that is null or missing is always an error
        assert trigger["type"] == "metrics-api"
    assert all(isinstance(value, str) for value in trigger["metadata"].values())  # KEDA accepts no other value
    # KEDA can fall back on a number of replicas only with an average over replicas.
    assert "fallback" not in scaled["spec"] or trigger["metricType"] == "AverageValue"


@pytest.mark.parametrize("name", KEDA)
def test_keda_never_scales_to_zero(name: str) -> None:
    spec = example(f"keda/{name}")["spec"]
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]


def test_the_autoscaler_is_valid_for_kubernetes() -> None:
    kubernetes_validate.validate(example("hpa/hpa.yaml"), kubernetes_validate.latest_version(), strict=True)
