"""README tables and schemas match the values, and rendered manifests match the reviewed golden files."""

import importlib.util
import os
import re
import tomllib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from support.kubernetes.helm_charts import CHARTS, ROOT, load_chart, pod_templates, render_chart, render_values_file

NAMES = ("burrow", "karrot")


@pytest.fixture(scope="module")
def chart_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart_docs", ROOT / "tools" / "chart_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_table_and_no_schema_is_stale(chart_docs: ModuleType) -> None:
    stale = chart_docs.stale([CHARTS / name for name in NAMES])
    assert list(stale) == [], "run python tools/chart_docs.py to write them again"


def lax(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the objects of a schema that list names and accept others too."""
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("properties"), dict):
        if schema.get("additionalProperties") in (None, True):
            yield path
        for name, each in schema["properties"].items():
            yield from lax(each, f"{path}/{name}")
    for each in schema.get("anyOf", []):
        yield from lax(each, path)


@pytest.mark.parametrize(
    ("name", "open_to_others"), [("burrow", []), ("karrot", ["/burrow", "/burrow/karrot"])], ids=["burrow", "karrot"]
)
def test_a_schema_is_draft_7_and_strict_but_for_the_dependency(name: str, open_to_others: list[str]) -> None:
    schema = load_chart(name).schema
    assert schema is not None
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(schema)
    assert list(lax(schema)) == open_to_others


def test_a_rule_without_a_sentence_for_wrong_values_is_named(chart_docs: ModuleType) -> None:
    with pytest.raises(chart_docs.UndocumentedError, match=r"no sentence \(# --\) above service\.port"):
        chart_docs.values("service:\n  # -- Its type.\n  type: ClusterIP\n  port: 80\n")


def test_a_comment_becomes_a_table_row_and_a_schema(chart_docs: ModuleType) -> None:
    text = """
# -- Pods,
# at most one.
# @schema maximum: 1
replicas: 1
# -- As in a pod | a map.
labels: {}
"""
    found = chart_docs.values(text)
    assert chart_docs.table(found).splitlines()[2:] == [
        "| `replicas` | `1` | Pods, at most one. |",
        "| `labels` | `{}` | As in a pod \\| a map. |",
    ]
    assert chart_docs.schema(found, {"properties": {"old": {"const": "write new"}}})["properties"] == {
        "replicas": {
            "description": "Pods, at most one.",
            "type": "integer",
            "maximum": 1,
        },
        "labels": {"description": "As in a pod | a map.", "type": "object"},
        "global": {"type": "object", "description": "What all charts of a release see."},
        "old": {"const": "write new"},
    }


def test_the_chart_installs_the_version_in_the_same_checkout() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = load_chart("karrot").metadata
    assert (metadata["appVersion"], metadata["kubeVersion"]) == (project["version"], ">=1.29.0-0")


def test_the_values_that_the_page_shows_are_accepted() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    shown = [each for each in blocks if "scrape_configs" not in each]
    assert len(shown) == 11
    for values in shown:
        assert render_chart("karrot", values)
    assert f"karrot:{load_chart('karrot').metadata['appVersion']}" in page


def test_the_values_for_a_platform_are_accepted_and_do_what_the_page_says() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8").partition("\n## OpenShift\n")[2]
    openshift, ipv6, cilium = (
        yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    )
    kafka = {"config": {"cluster": {"prod": {"servers": ["kafka:9092"]}}}}
    burrow = openshift.pop("burrow") | kafka | {"enabled": True}
    pods = dict(pod_templates(render_chart("karrot", {**openshift, "burrow": burrow})))
    assert len(pods) == 5
    for name, pod in pods.items():
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["spec"]["securityContext"].keys(), name
    [settings] = [
        each.body["data"] for each in render_chart("karrot", ipv6) if "KARROT_BIND" in each.body.get("data", {})
    ]
    assert settings["KARROT_BIND"] == "[::]:5000"
    [policy] = [each for each in render_chart("karrot", cilium) if each.kind == "CiliumNetworkPolicy"]
    [deployment] = [each.body for each in render_chart("karrot") if each.kind == "Deployment"]
    chosen = policy.body["spec"]["endpointSelector"]["matchLabels"].items()
    assert chosen <= deployment["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("shape", ["minimal", "existing-secrets", "everything", "postgresql", "evaluate"])
def test_a_shape_renders_its_reviewed_manifests(shape: str) -> None:
    """After an intended change: run GOLDEN=write pytest tests/chart/test_documents.py and review the difference."""
    golden = CHARTS / "karrot" / "golden" / f"{shape}.yaml"
    bodies = [
        each.body
        for each in render_values_file(CHARTS / "karrot" / "ci" / f"{shape}.yaml")
        if each.kind != "PrometheusRule" and not each.template.endswith("/dashboards.yaml")
    ]
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(yaml.safe_dump_all(bodies, width=120), encoding="utf-8")
    assert bodies == list(yaml.safe_load_all(golden.read_text(encoding="utf-8")))
