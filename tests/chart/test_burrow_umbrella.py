"""Burrow and Karrot in one release: Kafka's address is enough, and the chart asks for values it cannot know."""

import tomllib
from typing import Any

import pytest

from support.kubernetes.helm_charts import Manifest, only_object, render_chart, render_error
from support.kubernetes.pod_files import write_pod_files

Object = dict[str, Any]


def together(parent: Object | None = None, **burrow: Any) -> Object:
    config = {"cluster": {"mycluster": {"servers": ["kafka:9092"]}}}
    return {**(parent or {}), "burrow": {"enabled": True, "config": config, **burrow}}


def notifier(manifests: list[Manifest], name: str) -> Object:
    toml = tomllib.loads(only_object(manifests, "ConfigMap", name)["data"]["burrow.toml"])
    found: Object = toml["notifier"]["karrot"]
    return found


@pytest.mark.parametrize(("release", "karrot"), [("karrot", "karrot"), ("lag", "lag-karrot")])
def test_kafkas_address_is_the_only_required_value(release: str, karrot: str) -> None:
    manifests = render_chart("karrot", together(), release=release)
    assert notifier(manifests, f"{release}-burrow")["url-open"] == f"http://{karrot}.monitoring/burrow"
    [port] = only_object(manifests, "Service", karrot)["spec"]["ports"]
    assert port["port"] == 80
    assert only_object(manifests, "StatefulSet")["metadata"]["name"] == f"{release}-burrow-zookeeper"
    burrow = only_object(manifests, "Service", f"{release}-burrow")["spec"]["ports"][0]["port"]
    asked = only_object(manifests, "ConfigMap", karrot)["data"]["KARROT_BURROW_URL"]
    assert asked == f"http://{release}-burrow.monitoring:{burrow}"


def test_a_password_in_karrots_values_reaches_burrow_through_the_same_secret(tmp_path: Any) -> None:
    manifests = render_chart("karrot", together({"auth": {"username": "burrow", "password": "shared"}}))
    pod = only_object(manifests, "Deployment", "karrot-burrow")["spec"]["template"]
    assert write_pod_files(pod, manifests, {}, tmp_path).environment == {
        "BURROW_NOTIFIER_KARROT_USERNAME": "burrow",
        "BURROW_NOTIFIER_KARROT_PASSWORD": "shared",
    }


def test_without_credentials_burrow_has_none(tmp_path: Any) -> None:
    manifests = render_chart("karrot", together())
    pod = only_object(manifests, "Deployment", "karrot-burrow")["spec"]["template"]
    assert write_pod_files(pod, manifests, {}, tmp_path).environment == {}


ASKED = {
    "another name": (together({"fullnameOverride": "lag"}), "write burrow.karrot.url: http://lag.monitoring"),
    "another port": (together({"service": {"port": 8080}}), "burrow.karrot.url: http://karrot.monitoring:8080"),
    "TLS": (together({"tls": {"existingSecret": "t"}}), "write burrow.karrot.url: https://karrot.monitoring"),
    "a Secret of one's own": (
        together({"auth": {"existingSecret": "hook"}}),
        "write burrow.karrot.auth.type: basic and burrow.karrot.auth.existingSecret: hook",
    ),
    "a token": (together({"auth": {"token": "t"}}), "write burrow.karrot.auth.type: bearer"),
}


@pytest.mark.parametrize(("values", "sentence"), ASKED.values(), ids=ASKED)
def test_the_chart_asks_for_values_that_it_cannot_see_in_its_parent(values: Object, sentence: str) -> None:
    assert sentence in render_error("karrot", values)


def test_the_values_that_the_chart_asks_for_are_accepted(tmp_path: Any) -> None:
    said = {"url": "https://lag.monitoring:443", "auth": {"type": "basic", "existingSecret": "hook"}}
    parent = {"fullnameOverride": "lag", "tls": {"existingSecret": "t"}, "auth": {"existingSecret": "hook"}}
    manifests = render_chart("karrot", together(parent, karrot=said))
    assert notifier(manifests, "karrot-burrow")["url-open"] == "https://lag.monitoring:443/burrow"
    pod = only_object(manifests, "Deployment", "karrot-burrow")["spec"]["template"]
    secrets = {"hook": {"username": "burrow", "password": "shared"}}
    assert write_pod_files(pod, manifests, secrets, tmp_path).environment["BURROW_NOTIFIER_KARROT_PASSWORD"] == "shared"
