"""The values of the charts of 2019 install unchanged, or are refused with the value to write instead."""

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.helm_charts import Manifest, only_object, render_chart, render_error, render_text
from support.kubernetes.pod_files import write_pod_files

Object = dict[str, Any]
DATA = Path(__file__).parents[1] / "data" / "chart-2019"


def values(name: str) -> Object:
    found: Object = yaml.safe_load((DATA / f"{name}.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def article() -> list[Manifest]:
    """Return the article's values, with the two keys that it gives on the command line."""
    keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example"}
    return render_chart("karrot", {**values("article"), "karrot": {"env": keys}})


@pytest.fixture(scope="module")
def full() -> list[Manifest]:
    return render_chart("karrot", values("full"))


def burrow_toml(manifests: list[Manifest]) -> Object:
    return tomllib.loads(only_object(manifests, "ConfigMap", "karrot-burrow")["data"]["burrow.toml"])


def pod(manifests: list[Manifest], name: str) -> Object:
    found: Object = only_object(manifests, "Deployment", name)["spec"]["template"]
    return found


def test_the_article_installs_burrow_that_posts_to_the_service_karrot(article: list[Manifest]) -> None:
    toml = burrow_toml(article)
    service = only_object(article, "Service", "karrot")
    assert [port["port"] for port in service["spec"]["ports"]] == [80]
    assert toml["zookeeper"] == {
        "servers": ["zookeeper.example.com:2181"],
        "root-path": "/burrow-karrot",
        "timeout": 6,
    }
    servers = ["kafka-1.example.com:9092", "kafka-2.example.com:9092"]
    assert toml["cluster"]["mycluster"]["servers"] == servers
    assert toml["consumer"]["mycluster"]["servers"] == servers
    assert toml["notifier"]["karrot"] == {
        "class-name": "http",
        "url-open": "http://karrot.default.svc.cluster.local/burrow",
        "url-close": "http://karrot.default.svc.cluster.local/burrow",
        "method-open": "POST",
        "method-close": "POST",
        "template-open": "/etc/burrow/templates/karrot.tmpl",
        "template-close": "/etc/burrow/templates/karrot.tmpl",
        "send-close": True,
        "threshold": 1,
        "interval": 30,
        "send-interval": 20,
        "timeout": 5,
        "group-allowlist": ".*",
        "group-denylist": "^.*(console-consumer-|python-kafka-consumer-).*$",
        "headers": {"Idempotency-Key": "1"},
    }
    assert not [each for each in article if each.kind == "StatefulSet"]


def test_the_articles_keys_reach_the_environment_through_a_secret(article: list[Manifest], tmp_path: Path) -> None:
    environment = write_pod_files(pod(article, "karrot"), article, {}, tmp_path).environment
    assert environment["AWS_ACCESS_KEY_ID"] == "AKIAEXAMPLE"
    assert environment["AWS_SECRET_ACCESS_KEY"] == "example"
    assert environment["KARROT_COMPAT"] == "2019"
    assert "AKIAEXAMPLE" not in str([each for each in article if each.kind != "Secret"])


def test_every_key_of_2019_has_its_place_in_the_new_values(full: list[Manifest]) -> None:
    toml = burrow_toml(full)
    assert toml["general"] == {"pidfile": "/tmp/burrow.pid"}
    assert toml["logging"] == {"level": "warn"}
    assert toml["zookeeper"]["timeout"] == 9
    assert toml["httpserver"]["default"] == {"address": ":8001", "timeout": 100}
    assert toml["client-profile"]["main"] == {
        "kafka-version": "1.1.0",
        "client-id": "burrow",
        "tls": "main",
        "sasl": "main",
    }
    assert toml["sasl"]["main"] == {"username": "burrow", "mechanism": "SCRAM-SHA-512", "handshake-first": True}
    assert toml["cluster"] == {
        "prod": {
            "class-name": "kafka",
            "servers": ["kafka:9092"],
            "client-profile": "main",
            "topic-refresh": 30,
            "offset-refresh": 30,
        }
    }
    [consumer] = toml["consumer"].values()
    assert consumer["cluster"] == "prod"
    assert (consumer["group-allowlist"], consumer["group-denylist"]) == ("^app-", "^test-")
    notifier = toml["notifier"]["karrot"]
    assert (notifier["interval"], notifier["send-interval"], notifier["send-close"]) == (10, 6, False)
    assert notifier["extras"] == {"key1": "value1", "key2": "value2"}
    assert notifier["template-open"] == "/etc/burrow/templates/events.tmpl"
    assert not {"group-whitelist", "group-blacklist", "clustername"} & {*consumer, *notifier, *toml["cluster"]["prod"]}


def test_labels_annotations_and_secrets_of_2019_keep_their_places(full: list[Manifest], tmp_path: Path) -> None:
    deployment = only_object(full, "Deployment", "karrot-burrow")
    assert deployment["metadata"]["labels"]["tier"] == "monitoring"
    assert deployment["metadata"]["annotations"] == {"example.com/a": "deployment"}
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["tier"] == "pod"
    assert template["metadata"]["annotations"]["example.com/a"] == "pod"
    outside = {"burrow-environment": {"BURROW_ZOOKEEPER_SERVERS": "other:2181"}}
    assert write_pod_files(template, full, outside, tmp_path).environment == {
        "BURROW_ZOOKEEPER_SERVERS": "other:2181",
        "BURROW_SASL_MAIN_PASSWORD": "secret",
    }
    assert pod(full, "karrot")["metadata"]["annotations"]["example.com/a"] == "karrot"


REFUSED = {
    "offsets in ZooKeeper": (
        ("config", "consumer", "first", "className"),
        "kafka_zk",
        "write className: kafka, and Kafka",
    ),
    "extras as a text": (("config", "notifier", "karrot", "extras"), '{ key1="value1" }', "write a mapping, such as"),
    "another directory of templates": (
        ("templateDir",),
        "/templates",
        "templates are mounted at /etc/burrow/templates",
    ),
    "arguments": (("args",), ["-b", ":5000"], "burrow.args is not a key of Burrow or of the chart of 2019"),
    "a key that is unknown": (("config", "cluster", "first", "topicrefresh"), 1, "topicrefresh is not a key of Burrow"),
}


@pytest.mark.parametrize(("path", "value", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_key_without_a_meaning_today_is_refused_by_name(path: tuple[str, ...], value: object, sentence: str) -> None:
    asked = deepcopy(values("full"))
    place = asked["burrow"]["burrow"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert sentence in render_error("karrot", asked)


def test_the_notes_say_where_the_values_belong_now() -> None:
    old = {"config": {"cluster": {"a": {"servers": ["kafka:9092"]}}}, "secretConfig": "s"}
    notes = render_text("burrow", "NOTES.txt", {"burrow": old})
    assert "burrow.config.*        config.*, with groupAllowlist instead of groupWhitelist" in notes
    assert "burrow.secretConfig    existingSecret" in notes
