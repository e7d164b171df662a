"""Reads the PromQL queries from the KEDA and HPA examples."""

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def example(name: str) -> Any:
    """Return the only document of a file below ``examples/``."""
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def scaling_queries() -> dict[str, str]:
    """Return KEDA's queries unchanged, and the autoscaler's query as prometheus-adapter makes it from its template."""
    keda = {
        path.name: trigger["metadata"]["query"]
        for path in sorted((EXAMPLES / "keda").glob("scaledobject*.yaml"))
        for trigger in example(f"keda/{path.name}")["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    }
    return keda | {"hpa.yaml": _adapted()}


def _adapted() -> str:
    [metric] = example("hpa/hpa.yaml")["spec"]["metrics"]
    asked = metric["external"]["metric"]
    [rule] = example("hpa/prometheus-adapter-values.yaml")["rules"]["external"]
    assert rule["name"]["as"] == asked["name"]
    matchers = ",".join(f'{name}="{value}"' for name, value in asked["selector"]["matchLabels"].items())
    series = rule["seriesQuery"].partition("{")[0]
    query: str = rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", matchers)
    return query
