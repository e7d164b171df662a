"""A real API server takes every shape of both charts: install, upgrade, rollback, uninstall.

The API server checks more than schemas do: selectors against labels, ranges, quantities, fields that exclude each
other, the rules of the custom resources. It has no controller and no node, so no pod runs.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest

from e2e.stack.processes import wait_until
from support.kubernetes.helm_charts import CHARTS, only_object, read_values, render_values_file, values_files
from support.kubernetes.kube_apiserver import ApiServer, is_built, run_apiserver
from support.kubernetes.kubernetes_schemas import read_crds

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_built(), reason="needs kube-apiserver and etcd: make kube-apiserver builds them, once"),
]

SHAPES = [shape for name in ("burrow", "karrot") for shape in values_files(name)]
OTHERS = ("monitoring", "kafka", "kafka-monitoring", "prometheus")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with run_apiserver(tmp_path_factory.mktemp("kubeapi")) as server:
        for name in OTHERS:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            server.ask("/api/v1/namespaces", body)
        for crd in read_crds():
            server.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            wait_until(partial(server.knows, crd), [], what=f"{crd['spec']['names']['kind']} is known")
        yield server


def annotations(api: ApiServer, shape: Path) -> dict[str, str]:
    """Return the annotations of the pod template in the chart's own Deployment."""
    manifests = render_values_file(shape)
    own = [each for each in manifests if "/charts/" not in each.template and "/deployment-" not in each.template]
    name, namespace = (only_object(own, "Deployment")["metadata"][key] for key in ("name", "namespace"))
    found = api.ask(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    told: dict[str, str] = found["spec"]["template"]["metadata"].get("annotations", {})
    return told


@pytest.mark.parametrize("shape", SHAPES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_a_shape_is_installed_upgraded_and_rolled_back(shape: Path, api: ApiServer) -> None:
    chart, name = str(shape.parents[1]), shape.parents[1].name
    values: dict[str, Any] = read_values(shape)
    changed = values | {"podAnnotations": values.get("podAnnotations", {}) | {"changed": "yes"}}
    cluster = helm.Config(kubeconfig_path=api.kubeconfig, namespace="monitoring")
    try:
        cluster.install(chart, name, values)
        before = annotations(api, shape)
        cluster.upgrade(chart, name, changed)
        assert annotations(api, shape) == before | {"changed": "yes"}
        cluster.rollback(name, version=1)
        assert annotations(api, shape) == before
    finally:
        cluster.uninstall(name)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"service": {"ipFamilyPolicy": "RequireDualStack"}}, "ipFamilyPolicy"),
        ({"resources": {"requests": {"cpu": "50mm"}}}, "unable to parse quantity's suffix"),
        ({"livenessProbe": {"httpGet": {"path": "/", "port": "a--b"}}}, "must not contain consecutive hyphens"),
    ],
    ids=[
        "dual stack in a cluster of one stack",
        "a unit that Kubernetes does not know",
        "two hyphens in the name of a port",
    ],
)
def test_an_error_that_no_schema_sees_is_refused(broken: dict[str, Any], said: str, api: ApiServer) -> None:
    """The server does check, so the manifests that it accepted above are valid."""
    cluster = helm.Config(kubeconfig_path=api.kubeconfig, namespace="monitoring")
    try:
        with pytest.raises(helm.HelmError, match=said):
            cluster.install(str(CHARTS / "karrot"), "broken", broken)
    finally:
        cluster.uninstall("broken")
