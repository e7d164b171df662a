"""Renders the charts in ``helm/`` with Helm itself."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import helm_python as helm
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHARTS = ROOT / "helm"

Object = dict[str, Any]


class Manifest(NamedTuple):
    """One object that a chart renders, and its template."""

    template: str
    body: Object

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def is_test(self) -> bool:
        """Return whether only ``helm test`` creates the object."""
        return bool(self.body["metadata"].get("annotations", {}).get("helm.sh/hook") == "test")


def load_chart(name: str) -> helm.Chart:
    """Load the chart ``helm/<name>`` again, because a rendering without its dependency removes that from the chart."""
    return helm.Chart.load(CHARTS / name)


def values_files(name: str) -> list[Path]:
    """Return the values files of a chart's supported shapes: ``helm/<name>/ci/*.yaml``."""
    return sorted((CHARTS / name / "ci").glob("*.yaml"))


def read_values(shape: Path) -> Object:
    return yaml.safe_load(shape.read_text(encoding="utf-8")) or {}


def render_chart(name: str, values: Mapping[str, Any] | None = None, release: str | None = None) -> list[Manifest]:
    """Render like ``helm template RELEASE helm/<name>``, without NOTES.txt; raises ``helm.HelmError``."""
    texts = load_chart(name).render(dict(values or {}), name=release or name, namespace="monitoring")
    return list(_manifests(texts))


@cache
def render_values_file(shape: Path) -> tuple[Manifest, ...]:
    """Return the manifests of one ``ci/*.yaml``, rendered once for all tests of a process."""
    return tuple(render_chart(shape.parents[1].name, read_values(shape)))


def render_text(name: str, template: str, values: Mapping[str, Any] | None = None) -> str:
    """Return the output of one template, such as ``NOTES.txt``, as text."""
    texts = load_chart(name).render(dict(values or {}), name=name, namespace="monitoring")
    [found] = [text for path, text in texts.items() if path.endswith(f"/templates/{template}")]
    return found


def render_error(name: str, values: Mapping[str, Any]) -> str:
    """Return Helm's error for refused values; fail if Helm accepts them."""
    try:
        render_chart(name, values)
    except helm.HelmError as error:
        return str(error)
    raise AssertionError(f"taken: {values}")


def _manifests(texts: Mapping[str, str]) -> Iterator[Manifest]:
    for path, text in sorted(texts.items()):
        if path.endswith(".yaml"):
            yield from (Manifest(path, body) for body in yaml.safe_load_all(text) if body)


def only_object(manifests: Iterable[Manifest], kind: str, name: str | None = None) -> Object:
    """Return the only object of a kind (and a name), as Helm would send it to the API server."""
    found = [each for each in manifests if each.kind == kind and name in (None, each.name) and not each.is_test]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}: {[each.name for each in found]}"
    return found[0].body


def pod_templates(manifests: Iterable[Manifest]) -> Iterator[tuple[str, Object]]:
    """Yield every pod template (``metadata`` and ``spec``) with its owner's name: deployments, jobs and tests."""
    for each in manifests:
        if each.kind == "Pod":
            yield each.name, each.body
        elif "template" in each.body.get("spec", {}):
            yield each.name, each.body["spec"]["template"]
        elif each.kind == "CronJob":
            yield each.name, each.body["spec"]["jobTemplate"]["spec"]["template"]


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def restricted_violations(pod: Object) -> list[str]:
    """Return a pod's violations of the Pod Security Standard ``restricted`` and of our own stricter rules.

    Our own rules: a numeric user, a read-only root, no API token, and no variables of other Services.
    """
    spec = pod["spec"]
    below = spec.get("securityContext", {})
    wrong = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    wrong += [f"volume {each['name']} is a hostPath" for each in spec.get("volumes", []) if "hostPath" in each]
    wrong += [name for name in ("automountServiceAccountToken", "enableServiceLinks") if spec.get(name) is not False]
    for container in containers(pod):
        wrong += [f"{container['name']}: {each}" for each in _unrestricted(container, below)]
    return wrong


def _unrestricted(container: Object, below: Object) -> Iterator[str]:
    context = container.get("securityContext", {})
    both = below | context
    if not both.get("runAsNonRoot"):
        yield "runAsNonRoot"
    if not isinstance(both.get("runAsUser"), int) or both["runAsUser"] == 0:
        yield "runAsUser"
    if both.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccompProfile"
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "allowPrivilegeEscalation"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "readOnlyRootFilesystem"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "hostPort"
