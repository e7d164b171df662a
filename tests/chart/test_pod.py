"""Karrot's pod: there is one, it is restricted, and it restarts when its configuration changes."""

from typing import Any, ClassVar

import pytest

from karrot.settings.options import OPTIONS
from support.kubernetes.helm_charts import Manifest, only_object, render_chart
from support.web.website import make_website

BASE: dict[str, Any] = {"auth": {"username": "burrow", "password": "first"}, "env": {"TZ": "UTC"}}


def pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = only_object(render_chart("karrot", values), "Deployment")["spec"]["template"]
    return body


@pytest.mark.parametrize(
    "changed",
    [
        {"config": {"retention": "7d"}},
        {"env": {"TZ": "CET"}},
        {"auth": {"username": "burrow", "password": "second"}},
        {"watch": {"enabled": True, "bootstrapServers": "kafka:9092", "cluster": "prod"}},
    ],
    ids=["a setting", "a variable", "a password", "the brokers to watch"],
)
def test_a_change_of_the_pods_configuration_rolls_the_pod(changed: dict[str, Any]) -> None:
    assert pod(BASE)["metadata"]["annotations"] != pod(BASE | changed)["metadata"]["annotations"]


def test_a_change_outside_the_pods_configuration_does_not_roll_the_pod() -> None:
    changed = {"prometheusRule": {"enabled": True}, "serviceMonitor": {"enabled": True}, "service": {"port": 8080}}
    assert pod(BASE) == pod(BASE | changed)


def test_the_routes_of_the_probes_exist() -> None:
    client = make_website().client
    [container] = pod()["spec"]["containers"]
    paths = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert {path: client.get(path).status_code for path in paths} == {"/healthz": 200, "/readyz": 200}


def test_an_image_is_named_by_tag_or_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    images = {
        "appVersion": pod(),
        "tag": pod({"image": {"repository": "r.example/karrot", "tag": "v9"}}),
        "digest": pod({"image": {"repository": "r.example/karrot", "tag": "v9", "digest": digest}}),
    }
    assert {name: each["spec"]["containers"][0]["image"] for name, each in images.items()} == {
        "appVersion": "ghcr.io/lowess/karrot:2.0.0a1",
        "tag": "r.example/karrot:v9",
        "digest": f"r.example/karrot@{digest}",
    }


class TestSecrets:
    """Credentials are files, which a reload reads again; each credential is only in a Secret."""

    OWN: ClassVar[dict[str, Any]] = {
        "auth": {"username": "burrow", "password": "pass-1", "token": "token-1", "apiToken": "api-1"}
    }

    def test_no_secret_is_written_outside_of_secrets(self) -> None:
        values = self.OWN | {"env": {"AWS_SECRET_ACCESS_KEY": "key-1"}, "karrot": {"env": {"X": "old-1"}}}
        others = [each for each in render_chart("karrot", values) if each.kind != "Secret"]
        assert [
            each.template
            for each in others
            for secret in ("pass-1", "token-1", "api-1", "key-1", "old-1")
            if secret in str(each)
        ] == []

    def test_each_secret_setting_has_a_file_in_the_pod(self) -> None:
        posting = ("username", "password", "passwordPrevious", "token", "tokenPrevious")
        keys = dict.fromkeys((*posting, "apiToken", "apiTokenPrevious"), "k")
        told = pod({"auth": {"existingSecret": "mine", "keys": keys}})["spec"]["containers"][0]["env"]
        files = {each["name"].removesuffix("_FILE") for each in told if each["name"].endswith("_FILE")}
        inline = "KARROT_WATCH_PROPERTIES_INLINE"  # a pod mounts a file with these properties instead
        assert files == {each.name for each in OPTIONS if each.is_secret} - {inline}


class TestTheEventLog:
    def test_a_claim_is_made_and_kept_on_request(self) -> None:
        values = {"persistence": {"enabled": True, "retain": True, "storageClass": "gp3", "annotations": {"a": "b"}}}
        claim = only_object(render_chart("karrot", values), "PersistentVolumeClaim")
        assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"}
        assert claim["spec"] == {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "resources": {"requests": {"storage": "4Gi"}},
        }


def namespaces(manifests: list[Manifest]) -> dict[str, str]:
    return {each.kind: each.body["metadata"]["namespace"] for each in manifests}


def test_objects_for_other_programs_are_in_the_namespaces_that_they_watch() -> None:
    values = {
        "namespaceOverride": "kafka",
        "serviceMonitor": {"enabled": True, "namespace": "prometheus", "labels": {"release": "kps"}},
        "prometheusRule": {"enabled": True, "namespace": "prometheus", "labels": {"release": "kps"}},
    }
    manifests = render_chart("karrot", values)
    assert {kind for kind, namespace in namespaces(manifests).items() if namespace == "kafka"} == {
        "ConfigMap",
        "Deployment",
        "Pod",
        "Service",
        "ServiceAccount",
    }
    for kind in ("ServiceMonitor", "PrometheusRule"):
        metadata = only_object(manifests, kind)["metadata"]
        assert (metadata["namespace"], metadata["labels"]["release"]) == ("prometheus", "kps")
    assert only_object(manifests, "ServiceMonitor")["spec"]["namespaceSelector"] == {"matchNames": ["kafka"]}


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"tables_dir": "/tables"}, "64Mi"),
        ({"tables_dir": "s3://lag/tables"}, "1088Mi"),
        ({"tables_dir": "s3a://lag/tables", "workers": 3}, "1600Mi"),
    ],
    ids=["a folder", "S3 and two workers", "S3 and three workers"],
)
def test_the_temporary_folder_has_room_for_the_copies_of_tables_in_s3(config: dict[str, Any], size: str) -> None:
    [found] = [each["emptyDir"] for each in pod({"config": config})["spec"]["volumes"] if each["name"] == "tmp"]
    assert found == {"sizeLimit": size}
