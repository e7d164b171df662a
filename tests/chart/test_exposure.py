"""Services, ingresses, monitors and network policies: the traffic to and from Karrot."""

import tomllib
from typing import Any

import pytest
import yaml

from karrot.render import burrow_config
from support.kubernetes.helm_charts import CHARTS, only_object, render_chart, render_text, render_values_file

POLICY = {"networkPolicy": {"enabled": True}}
KAFKA = {"reporters": ["prometheus", "kafka"], "kafka_bootstrap": "d:9096"}
WATCH = {"enabled": True, "bootstrapServers": "a:9092,b:9092, c:9094", "cluster": "prod"}


def test_nothing_is_exposed_by_default() -> None:
    manifests = render_chart("karrot")
    assert {each.kind for each in manifests} == {"ConfigMap", "Deployment", "Pod", "Service", "ServiceAccount"}
    assert only_object(manifests, "Service")["spec"] == {
        "type": "ClusterIP",
        "selector": {"app.kubernetes.io/name": "karrot", "app.kubernetes.io/instance": "karrot"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    }


def test_the_service_is_called_karrot_in_a_release_of_that_name_and_after_the_release_in_others() -> None:
    names = [
        only_object(render_chart("karrot", release=release), "Service")["metadata"]["name"]
        for release in ("karrot", "lag")
    ]
    assert names == ["karrot", "lag-karrot"]


def test_the_minikube_values_open_a_port_of_the_node() -> None:
    service = only_object(render_values_file(CHARTS / "karrot" / "ci" / "minikube.yaml"), "Service")
    assert (service["spec"]["type"], service["spec"]["ports"][0]["nodePort"]) == ("NodePort", 30500)


def test_the_monitors_selector_does_not_find_burrow() -> None:
    values = yaml.safe_load((CHARTS / "karrot" / "ci" / "with-burrow.yaml").read_text(encoding="utf-8"))
    manifests = render_chart("karrot", values | {"serviceMonitor": {"enabled": True}})
    chosen = only_object(manifests, "ServiceMonitor", "karrot")["spec"]["selector"]["matchLabels"].items()
    services = {each.name: each.body["metadata"]["labels"].items() for each in manifests if each.kind == "Service"}
    assert [name for name, labels in services.items() if chosen <= labels] == ["karrot"]


def outgoing(values: dict[str, Any]) -> set[int]:
    """Return the ports to which the policy allows egress."""
    policy = only_object(render_chart("karrot", POLICY | values), "NetworkPolicy")["spec"]
    return {port["port"] for rule in policy["egress"] for port in rule["ports"]}


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        pytest.param({}, {53}, id="the defaults"),
        pytest.param({"watch": WATCH}, {53, 9092, 9094}, id="watch"),
        pytest.param({"config": KAFKA}, {53, 9096}, id="the kafka reporter"),
        pytest.param({"config": KAFKA, "watch": WATCH}, {53, 9092, 9094, 9096}, id="watch and the kafka reporter"),
        pytest.param(
            {"config": KAFKA | {"reporters": "prometheus"}}, {53}, id="the kafka reporter's settings while it is off"
        ),
        pytest.param(
            {"config": {"reporters": ["prometheus", "cloudwatch"]}},
            {53, 443, 80},
            id="a list of reporters with cloudwatch",
        ),
        pytest.param({"config": {"reporters": "cloudwatch"}}, {53, 443, 80}, id="cloudwatch"),
        pytest.param({"config": {"compat": "2019"}}, {53, 443, 80}, id="compat 2019"),
        pytest.param(
            {"config": {"compat": "2019", "reporters": "prometheus"}}, {53}, id="compat 2019 without cloudwatch"
        ),
        pytest.param(
            {"karrot": {"env": {"AWS_ACCESS_KEY_ID": "k"}}}, {53, 443, 80}, id="AWS credentials of the first chart"
        ),
        pytest.param({"env": {"KARROT_REPORTERS": "cloudwatch"}}, {53, 443, 80}, id="cloudwatch from env"),
        pytest.param(
            {"config": {"reporters": "archive", "archive_dir": "s3://lag/archive"}},
            {53, 443, 80},
            id="an archive in S3",
        ),
        pytest.param({"config": {"reporters": "archive"}}, {53}, id="an archive in a folder"),
        pytest.param({"config": {"tables_dir": "s3a://lag/tables"}}, {53, 443, 80}, id="tables in S3"),
        pytest.param({"config": {"event_log": "postgresql://karrot@db/karrot"}}, {53, 5432}, id="PostgreSQL"),
        pytest.param(
            {"config": {"event_log": "postgresql://karrot@one:5433,[fd00::2]:5434,two/karrot"}},
            {53, 5432, 5433, 5434},
            id="PostgreSQL on several ports",
        ),
        pytest.param(
            {"config": {"event_log": "postgres:///karrot?user=karrot&host=db&port=6432"}},
            {53, 6432},
            id="PostgreSQL at the port among the parameters",
        ),
        pytest.param(
            {"config": {"event_log": "postgresql://karrot@db/karrot", "event_log_rds_iam": True}},
            {53, 5432, 443, 80},
            id="PostgreSQL with a token of IAM",
        ),
    ],
)
def test_egress_is_allowed_only_for_features_that_are_on(values: dict[str, Any], ports: set[int]) -> None:
    assert outgoing(values) == ports


def test_traffic_to_and_from_a_burrow_in_the_release_is_allowed_whatever_its_name() -> None:
    burrow = {"enabled": True, "nameOverride": "judge", "config": {"cluster": {"prod": {"servers": ["kafka:9092"]}}}}
    policy = only_object(render_chart("karrot", POLICY | {"burrow": burrow}), "NetworkPolicy", "karrot")["spec"]
    peer = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "judge"}}}
    assert peer in policy["ingress"][0]["from"]
    assert [rule["ports"] for rule in policy["egress"] if peer in rule.get("to", [])] == [[{"port": 8000}]]


@pytest.mark.parametrize("flag", [True, "Yes", 1, "on"])
def test_every_word_for_true_gives_prometheus_the_token(flag: object) -> None:
    values = {"auth": {"apiToken": "t"}, "config": {"metrics_auth": flag}, "serviceMonitor": {"enabled": True}}
    [endpoint] = only_object(render_chart("karrot", values), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "karrot-auth", "key": "apiToken"}}


def test_the_notes_have_the_section_that_burrow_needs() -> None:
    notes = render_text("karrot", "NOTES.txt", {"auth": {"username": "burrow", "password": "p"}})
    shown = tomllib.loads(notes[notes.index("  [notifier.karrot]") : notes.index("\nOr set")])
    assert shown == tomllib.loads(burrow_config("http://karrot.monitoring:80", user="burrow"))


def test_the_notes_warn_of_an_open_ingress() -> None:
    ingress = {"enabled": True, "hosts": [{"host": "karrot.example.com"}]}
    warning = "WARNING: the Ingress is open"
    assert warning in render_text("karrot", "NOTES.txt", {"ingress": ingress})
    assert warning not in render_text("karrot", "NOTES.txt", {"ingress": ingress, "auth": {"apiToken": "x"}})
