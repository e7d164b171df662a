"""Helm, the schemas of Kubernetes and its operators, and a restricted namespace accept every supported shape."""

from pathlib import Path

import helm_python as helm
import pytest

from support.kubernetes.helm_charts import (
    CHARTS,
    Manifest,
    containers,
    load_chart,
    pod_templates,
    read_values,
    render_values_file,
    restricted_violations,
    values_files,
)
from support.kubernetes.kubernetes_schemas import schema_errors

SHAPES = [shape for name in ("burrow", "karrot") for shape in values_files(name)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")


def test_the_promised_shapes_exist() -> None:
    promised = {"minimal", "with-burrow", "without-burrow", "existing-secrets", "restricted-namespace", "irsa"}
    assert promised | {"persistent", "everything", "minikube"} <= {shape.stem for shape in values_files("karrot")}


@each_shape
def test_a_shape_passes_helm_lint_without_a_warning(shape: Path) -> None:
    report = helm.lint(shape.parents[1], read_values(shape), strict=True)
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    assert report["errors"] == []


@each_shape
def test_kubernetes_and_the_operators_know_every_field(shape: Path) -> None:
    wrong = {f"{each.kind} {each.name}": schema_errors(each.body) for each in render_values_file(shape)}
    assert {name: found for name, found in wrong.items() if found} == {}


@each_shape
def test_every_pod_is_allowed_in_a_restricted_namespace(shape: Path) -> None:
    wrong = {name: restricted_violations(pod) for name, pod in pod_templates(render_values_file(shape))}
    assert {name: found for name, found in wrong.items() if found} == {}


@each_shape
def test_no_two_objects_have_one_name(shape: Path) -> None:
    names = [(each.kind, each.body["metadata"].get("namespace", ""), each.name) for each in render_values_file(shape)]
    assert sorted(set(names)) == sorted(names)


@each_shape
def test_each_selector_matches_its_own_pods_and_no_others(shape: Path) -> None:
    manifests = render_values_file(shape)
    labels = {name: set(pod["metadata"].get("labels", {}).items()) for name, pod in pod_templates(manifests)}
    for each in manifests:
        if each.kind in {"Deployment", "StatefulSet"}:
            chosen = set(each.body["spec"]["selector"]["matchLabels"].items())
            assert [name for name, worn in labels.items() if chosen <= worn] == [each.name]
            assert all("helm.sh/chart" not in name for name, _ in chosen), (
                "the label changes with each version, but a selector must not change"
            )
        if each.kind == "Service":
            chosen = set(each.body["spec"]["selector"].items())
            assert len([name for name, worn in labels.items() if chosen <= worn]) == 1, each.name


@each_shape
def test_port_names_in_references_exist(shape: Path) -> None:
    manifests = render_values_file(shape)
    offered = {
        port["name"] for _, pod in pod_templates(manifests) for one in containers(pod) for port in one.get("ports", [])
    }
    assert _asked_of_pods(manifests) <= offered
    served = {port["name"] for each in manifests if each.kind == "Service" for port in each.body["spec"]["ports"]}
    assert _asked_of_services(manifests) <= served


def _asked_of_pods(manifests: tuple[Manifest, ...]) -> set[str]:
    asked = {port["targetPort"] for each in manifests if each.kind == "Service" for port in each.body["spec"]["ports"]}
    for _, pod in pod_templates(manifests):
        for one in containers(pod):
            probes = [one.get(name, {}) for name in ("startupProbe", "livenessProbe", "readinessProbe")]
            asked |= {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe}
    for each in manifests:
        if each.kind == "PodMonitor":
            asked |= {one["port"] for one in each.body["spec"]["podMetricsEndpoints"]}
        if each.kind == "NetworkPolicy":
            rules = each.body["spec"]["ingress"]
            asked |= {port["port"] for rule in rules for port in rule.get("ports", []) if isinstance(port["port"], str)}
    return {port for port in asked if isinstance(port, str)}


def _asked_of_services(manifests: tuple[Manifest, ...]) -> set[str]:
    asked: set[str] = set()
    for each in manifests:
        if each.kind == "ServiceMonitor":
            asked |= {one["port"] for one in each.body["spec"]["endpoints"]}
        if each.kind == "Ingress":
            paths = [path for rule in each.body["spec"]["rules"] for path in rule["http"]["paths"]]
            asked |= {path["backend"]["service"]["port"]["name"] for path in paths}
    return asked


@each_shape
def test_every_volume_that_a_pod_mounts_exists(shape: Path) -> None:
    claims = {
        each.name: [claim["metadata"]["name"] for claim in each.body["spec"].get("volumeClaimTemplates", [])]
        for each in render_values_file(shape)
        if each.kind == "StatefulSet"
    }
    for name, pod in pod_templates(render_values_file(shape)):
        volumes = [each["name"] for each in pod["spec"].get("volumes", [])] + claims.get(name, [])
        mounted = {each["name"] for one in containers(pod) for each in one.get("volumeMounts", [])}
        assert sorted(set(volumes)) == sorted(volumes), name
        assert mounted <= set(volumes), name


@pytest.mark.parametrize("name", ["burrow", "karrot"])
def test_a_package_renders_the_same_manifests_as_its_directory(name: str, tmp_path: Path) -> None:
    """Links into other directories are followed, and files that only developers need are left out."""
    package = helm.Chart.load(helm.package(CHARTS / name, destination=tmp_path))
    shape = read_values(CHARTS / name / "ci" / "everything.yaml")
    assert package.render(shape, name=name) == load_chart(name).render(shape, name=name)
    assert [each["name"] for each in package.files if each["name"].startswith(("ci/", "values.schema.yaml"))] == []
