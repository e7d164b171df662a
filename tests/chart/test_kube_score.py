"""Every finding of kube-score has a written reason here.

``make chart`` fetches kube-score; without it the test is skipped.
"""

import json
import os
import shutil
import subprocess

import pytest
import yaml

from support.kubernetes.helm_charts import render_values_file, values_files

EXPLAINED = {
    "container-resources": "A default would be wrong for most: it depends on the groups. CPU limits throttle.",
    "container-ephemeral-storage-request-and-limit": "As with memory. config.max_log_bytes bounds the event log.",
    "container-image-pull-policy": "The tags are versions, which do not move.",
    "deployment-has-host-podantiaffinity": "topologySpreadConstraints spread several pods over nodes and zones.",
    "deployment-replicas": "One: an event log of SQLite is on one volume, and Burrow's notifier has a lock.",
    "deployment-strategy": "Recreate: the old pod has to let go of an event log of SQLite first.",
    "pod-networkpolicy": "Off unless asked for: who may come in depends on the cluster.",
    "pod-probes-identical": "ZooKeeper alone: it is ready when it answers, and started again when it does not.",
    "service-type": "A NodePort where the shape asks for one.",
    "statefulset-has-servicename": "ZooKeeper is one pod behind an ordinary Service; nobody asks for it by name.",
}
KUBE_SCORE = os.environ.get("KUBE_SCORE") or shutil.which("kube-score")


@pytest.mark.skipif(KUBE_SCORE is None, reason="needs kube-score, on PATH or named by KUBE_SCORE")
def test_no_finding_is_unexplained() -> None:
    bodies = [
        each.body | {"metadata": each.body["metadata"] | {"namespace": f"{shape.parents[1].name}-{shape.stem}"}}
        for name in ("burrow", "karrot")
        for shape in values_files(name)
        for each in render_values_file(shape)
    ]
    command = [str(KUBE_SCORE), "score", "--output-format", "json", "-"]
    done = subprocess.run(command, input=yaml.safe_dump_all(bodies), capture_output=True, text=True, check=False)
    findings = {
        (one["check"]["id"], scored["object_name"])
        for scored in json.loads(done.stdout)
        for one in scored["checks"]
        if not one["skipped"] and one["grade"] < 10
    }
    assert findings
    assert {finding for finding in findings if finding[0] not in EXPLAINED} == set()
    assert EXPLAINED.keys() - {check for check, _ in findings} == set(), (
        "remove this reason: kube-score no longer has the finding"
    )
