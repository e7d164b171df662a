"""Burrow's pods get secrets by environment, a ZooKeeper if none is named, and a restart after a change."""

from pathlib import Path
from typing import Any

import pytest

from support.kubernetes.helm_charts import Manifest, only_object, render_chart, render_values_file, values_files
from support.kubernetes.pod_files import PodCommand, write_pod_files

Object = dict[str, Any]
SHAPES = {shape.stem: shape for shape in values_files("burrow")}
KAFKA: Object = {"config": {"cluster": {"mycluster": {"servers": ["kafka:9092"]}}}}
WIRED: Object = {**KAFKA, "karrot": {"enabled": True, "url": "http://karrot"}}


def burrows_pod(manifests: Any) -> Object:
    [deployment] = [each for each in manifests if each.kind == "Deployment"]
    pod: Object = deployment.body["spec"]["template"]
    return pod


def started(shape: str, secrets: dict[str, Object], directory: Path) -> PodCommand:
    manifests = render_values_file(SHAPES[shape])
    return write_pod_files(burrows_pod(manifests), manifests, secrets, directory)


def test_burrow_starts_with_its_configuration_its_templates_and_its_ca_certificate(tmp_path: Path) -> None:
    secrets = {
        "prod-cluster-ca-cert": {"ca.crt": "authority"},
        "burrow": {"password": "p4$$"},
        "karrot-webhook": {"token": "t0ken"},
    }
    found = started("sasl-tls", secrets, tmp_path)
    assert found == PodCommand(
        {
            "BURROW_SASL_BURROW_PASSWORD": "p4$$",
            "KARROT_TOKEN": "t0ken",
            "BURROW_NOTIFIER_KARROT_HEADERS": '{"Authorization":"Bearer t0ken","Idempotency-Key":"1"}',
        },
        ["/app/burrow", "--config-dir", f"{tmp_path}/etc/burrow"],
    )
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        "etc/burrow/burrow.toml",
        "etc/burrow/templates/karrot.tmpl",
        "etc/burrow/tls/kafka/ca.crt",
    }
    assert f'cafile = "{tmp_path}/etc/burrow/tls/kafka/ca.crt"' in (tmp_path / "etc/burrow/burrow.toml").read_text()


def test_a_password_in_the_values_reaches_only_the_environment(tmp_path: Path) -> None:
    secrets = {
        "burrow-environment": {"BURROW_SASL_OTHER_PASSWORD": "x"},
        "karrot-webhook": {"user": "burrow", "password": "hook"},
    }
    assert started("own-secrets", secrets, tmp_path).environment == {
        "BURROW_SASL_OTHER_PASSWORD": "x",
        "BURROW_SASL_MAIN_USER_PASSWORD": 'p4$$ "w0rd"',
        "BURROW_NOTIFIER_KARROT_USERNAME": "burrow",
        "BURROW_NOTIFIER_KARROT_PASSWORD": "hook",
    }
    others = [each for each in render_values_file(SHAPES["own-secrets"]) if each.kind != "Secret"]
    assert "w0rd" not in str(others)


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"logging": {"level": "debug"}}},
        {"templates": {"other.tmpl": "x"}},
        {"config": {"sasl": {"s": {"password": "changed"}}}},
    ],
    ids=["burrow.toml", "a template", "a password"],
)
def test_a_change_of_the_configuration_rolls_the_pod(change: Object) -> None:
    before = {**WIRED, "config": {**WIRED["config"], "sasl": {"s": {"password": "first"}}}}
    after = {**before, **change, "config": before["config"] | change.get("config", {})}
    annotations = [burrows_pod(render_chart("burrow", each))["metadata"]["annotations"] for each in (before, after)]
    assert annotations[0] != annotations[1]


@pytest.mark.parametrize(
    ("values", "brought"),
    [
        (WIRED, True),
        (KAFKA, False),
        ({**WIRED, "config": {**WIRED["config"], "zookeeper": {"servers": ["zk:2181"]}}}, False),
    ],
    ids=["a notifier and no address", "no notifier", "an address"],
)
def test_zookeeper_is_installed_if_it_is_needed_and_not_named(values: Object, *, brought: bool) -> None:
    manifests = render_chart("burrow", values)
    made = {each.kind for each in manifests if each.name == "burrow-zookeeper"}
    assert made == ({"ConfigMap", "Service", "StatefulSet"} if brought else set())
    toml = only_object(manifests, "ConfigMap", "burrow")["data"]["burrow.toml"]
    assert ('servers = ["burrow-zookeeper.monitoring:2181"]' in toml) is brought


def test_the_probes_ask_burrows_routes_for_alive_and_ready() -> None:
    [container] = burrows_pod(render_values_file(SHAPES["minimal"]))["spec"]["containers"]
    asked = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert asked == {"startup": "/burrow/admin", "liveness": "/burrow/admin", "readiness": "/burrow/admin/ready"}


def test_a_network_policy_allows_egress_to_the_configured_addresses() -> None:
    policies = {each.name: each for each in render_values_file(SHAPES["everything"]) if each.kind == "NetworkPolicy"}
    ports = {port["port"] for port in open_to_all(policies["burrow-judge"])}
    assert ports == {53, 80, 9092, 9094}
    assert policies["burrow-judge-zookeeper"].body["spec"]["egress"] == []


def open_to_all(policy: Manifest) -> list[Object]:
    return [port for rule in policy.body["spec"]["egress"] if "to" not in rule for port in rule["ports"]]


def test_the_digest_of_an_image_wins_over_its_tag() -> None:
    images = {each["image"] for each in burrows_pod(render_values_file(SHAPES["everything"]))["spec"]["containers"]}
    assert images == {"registry.example.com/burrow@sha256:" + "0123456789abcdef" * 4}
