"""A real API server accepts the driver's pod of ``spark-submit --master k8s://…``. It has no node, so no pod runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.stack.processes import Servers, wait_until
from support.kubernetes.kube_apiserver import is_built, run_apiserver

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_built(), reason="needs kube-apiserver and etcd: make kube-apiserver builds them, once"),
    pytest.mark.skipif(not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="needs Java"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline-places.md"
_PODS = "/api/v1/namespaces/lag/pods"


def test_the_command_of_the_page_makes_the_pod_of_the_driver_and_waits_for_its_end(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    found = re.search(r"^spark-submit --master k8s:(?:.*\\\n)+.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    with run_apiserver(tmp_path) as api, Servers(tmp_path) as servers:
        api.ask("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lag"}})
        command = found[0].replace("https://kubernetes.example.com:6443", api.url)
        binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = [f"PATH={binaries}", f"KUBECONFIG={api.kubeconfig}", "SPARK_LOCAL_IP=127.0.0.1"]
        submit = servers.start("spark-submit", ["env", *given, "bash", "-c", command])
        wait_until(lambda: bool(api.ask(_PODS)["items"]), [submit], what="the API server has the pod of the driver")
        [pod] = api.ask(_PODS)["items"]
        [driver] = pod["spec"]["containers"]
        assert (pod["spec"]["serviceAccountName"], pod["status"]["phase"]) == ("spark", "Pending")
        assert driver["image"] == "registry.example.com/karrot-spark"
        script = "local:///opt/karrot/karrot_pipeline.py"
        tail = [script, "run", "--once", "--only", "derive", "--tables", "s3://lag/tables"]
        assert (driver["args"][0], driver["args"][-7:]) == ("driver", tail)
        # The end of the driver, as a node would report it. The page says that the exit code does not show the failure.
        pod["status"]["phase"] = "Failed"
        api.ask(f"{_PODS}/{pod['metadata']['name']}/status", pod, method="PUT")
        try:
            assert submit.wait(120.0) == 0, submit.log.read_text()
        except subprocess.TimeoutExpired:
            pytest.fail(submit.log.read_text())
