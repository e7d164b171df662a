"""Burrow's verdicts on Spark: one driver that posts to the chart's own Karrot."""

import re
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from karrot.cli import main
from support.kubernetes.helm_charts import (
    CHARTS,
    ROOT,
    Object,
    only_object,
    render_chart,
    render_error,
    render_text,
    render_values_file,
)

SHAPE = CHARTS / "karrot" / "ci" / "evaluate.yaml"
NAME = "karrot-evaluate"
EVALUATE = {"enabled": True, "cluster": "prod", "bootstrapServers": "kafka:9092"}


def _values(**evaluate: Any) -> Object:
    return {"pipeline": {"tables": "s3://lag/tables"}, "evaluate": EVALUATE | evaluate}


def _pod(values: Object) -> Object:
    pod: Object = only_object(render_chart("karrot", values), "Deployment", NAME)["spec"]["template"]
    return pod


def _container(values: Object) -> Object:
    [container] = _pod(values)["spec"]["containers"]
    found: Object = container
    return found


def test_the_command_knows_every_option_that_the_chart_passes() -> None:
    known = CliRunner().invoke(main, ["pipeline", "offsets", "--help"]).output
    for values in (yaml.safe_load(SHAPE.read_text(encoding="utf-8")), _values(checkpoint="s3://lag/evaluate")):
        assert {each.partition("=")[0] for each in _container(values)["args"][2:]} - {*known.split()} == set()


def test_the_pod_is_that_of_the_pipeline_but_for_its_own_settings() -> None:
    own = {"config": {"archive_dir": "/lag/archive"}, "imagePullSecrets": [{"name": "registry"}]}
    volume = {"name": "lag", "persistentVolumeClaim": {"claimName": "lag"}}
    mount = {"name": "lag", "mountPath": "/lag"}
    shared = {"enabled": True, "archive": "/lag/archive", "tables": "/lag/tables"}
    shared |= {"extraVolumes": [volume], "extraVolumeMounts": [mount], "image": {"tag": "mine"}}
    manifests = render_chart("karrot", own | {"pipeline": shared, "evaluate": EVALUATE})
    pods = [only_object(manifests, "Deployment", name)["spec"]["template"] for name in ("karrot-pipeline", NAME)]
    for pod in pods:
        assert pod["spec"]["containers"][0]["image"].endswith(":mine")
        assert volume in pod["spec"]["volumes"]
        assert mount in pod["spec"]["containers"][0]["volumeMounts"]
        for key in ("name", "args"):
            del pod["spec"]["containers"][0][key]
        del pod["metadata"]["labels"]["app.kubernetes.io/name"]
    assert pods[0] == pods[1]


def test_the_checkpoint_can_be_outside_the_tables() -> None:
    elsewhere = _values(checkpoint="s3://lag/evaluate")
    assert [each for each in _container(elsewhere)["args"] if each.startswith(("--tables", "--checkpoint"))] == [
        "--tables=s3://lag/tables",
        "--checkpoint=s3://lag/evaluate",
    ]


def test_the_token_comes_from_the_secret_that_karrot_reads() -> None:
    def token(auth: Object) -> Any:
        env = _container(_values() | {"auth": auth}).get("env", [])
        return [each["valueFrom"]["secretKeyRef"] for each in env if each["name"] == "KARROT_BURROW_TOKEN"]

    assert token({}) == []
    assert token({"token": "t"}) == [{"name": "karrot-auth", "key": "token"}]
    keys = {"username": "", "password": "", "token": "burrow-token"}
    assert token({"existingSecret": "mine", "keys": keys}) == [{"name": "mine", "key": "burrow-token"}]


def test_a_new_token_in_the_values_starts_the_pod_again() -> None:
    first, second = (_pod(_values() | {"auth": {"token": token}})["metadata"] for token in ("a", "b"))
    assert first["annotations"] != second["annotations"]
    assert first["labels"] == second["labels"]


def test_the_pod_trusts_the_authority_of_karrots_certificate_but_does_not_get_its_key() -> None:
    values = _values() | {"tls": {"existingSecret": "karrot-tls"}}
    assert {"name": "SSL_CERT_FILE", "value": "/etc/karrot/tls/ca.crt"} in _container(values)["env"]
    [volume] = [each for each in _pod(values)["spec"]["volumes"] if each["name"] == "tls"]
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    public = _pod(_values(to="https://karrot.example.com") | {"tls": {"existingSecret": "karrot-tls"}})["spec"]
    assert "env" not in public["containers"][0]
    assert [each["name"] for each in public["volumes"]] == ["tmp"]


def test_prometheus_scrapes_the_driver_and_has_an_alert_for_it() -> None:
    for monitored in ({"podMonitor": {"enabled": True}}, {"serviceMonitor": {"enabled": True}}):
        manifests = render_chart("karrot", _values(metricsPort=9308) | monitored)
        monitor = only_object(manifests, "PodMonitor", NAME)
        pod = only_object(manifests, "Deployment", NAME)["spec"]["template"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
        assert pod["spec"]["containers"][0]["ports"] == [{"name": "metrics", "containerPort": 9308}]
    groups = only_object(render_values_file(SHAPE), "PrometheusRule")["spec"]["groups"]
    assert "KarrotEvaluateBehind" in {rule.get("alert") for group in groups for rule in group["rules"]}


def _egress(policy: Object) -> list[tuple[str, list[Any]]]:
    return [
        ("any" if "to" not in rule else "pods" if "podSelector" in rule["to"][0] else "addresses", ports)
        for rule in policy["spec"]["egress"]
        for ports in [[port["port"] for port in rule["ports"]]]
    ]


@pytest.mark.parametrize(
    ("to", "port"),
    [("http://karrot.lag:5000", 5000), ("https://karrot.example.com/burrow", 443), ("http://karrot.example.com", 80)],
)
def test_a_network_policy_lets_the_driver_reach_another_karrot(to: str, port: int) -> None:
    values = {"networkPolicy": {"enabled": True}, "pipeline": {"tables": "/lag/tables"}}
    values |= {"evaluate": EVALUATE | {"to": to}}
    assert f"--to=karrot={to}" in _container(values)["args"]
    manifests = render_chart("karrot", values)
    policy, own = (only_object(manifests, "NetworkPolicy", name) for name in (NAME, "karrot"))
    assert _egress(policy) == [("any", [53, 53]), ("any", [port]), ("any", [9092])]
    assert {"podSelector": policy["spec"]["podSelector"]} not in own["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize("checkpoint", ["", "/lag/evaluate"])
def test_a_network_policy_lets_the_driver_write_tables_in_s3(checkpoint: str) -> None:
    manifests = render_chart("karrot", _values(checkpoint=checkpoint) | {"networkPolicy": {"enabled": True}})
    assert ("any", [443]) in _egress(only_object(manifests, "NetworkPolicy", NAME))


REFUSED: dict[str, tuple[Object, str]] = {
    "no brokers": (
        _values(bootstrapServers=""),
        "evaluate.enabled needs evaluate.bootstrapServers (Kafka's address) and evaluate.cluster",
    ),
    "no cluster": (_values(cluster=""), "evaluate.enabled needs evaluate.bootstrapServers"),
    "a broker without a port": (
        _values(bootstrapServers=["kafka"]),
        'evaluate.bootstrapServers has "kafka": write HOST:PORT',
    ),
    "no place for the commits": (
        {"evaluate": EVALUATE | {"checkpoint": "s3://lag/evaluate"}},
        "evaluate.enabled needs pipeline.tables, such as s3://lag/tables",
    ),
    "a password without a token": (
        _values() | {"auth": {"username": "burrow", "password": "secret"}},
        "the command sends a token to /burrow, not a password; set auth.token",
    ),
    "a Secret without a token": (_values() | {"auth": {"existingSecret": "mine"}}, "or auth.keys.token"),
    "a cluster that Karrot polls too": (
        _values() | {"watch": {"enabled": True, "cluster": "prod", "bootstrapServers": "kafka:9092"}},
        'watch.cluster and evaluate.cluster are both "prod": Karrot would report each incident twice',
    ),
    "a cluster whose offsets the pipeline writes too": (
        {
            "pipeline": {"enabled": True, "archive": "s3://a/b", "tables": "s3://a/t", "args": ["--offsets", "prod"]},
            "evaluate": EVALUATE,
        },
        'pipeline.args has --offsets for "prod", and evaluate.cluster is the same',
    ),
    "an address without a scheme": (_values(to="karrot:5000"), "at '/evaluate/to': 'karrot:5000' does not match"),
    "a password in the address": (_values(to="http://a:b@karrot"), "at '/evaluate/to'"),
    "an unknown value": (_values(replicas=2), "additional properties 'replicas' not allowed"),
}


@pytest.mark.parametrize(("values", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused(values: Object, sentence: str) -> None:
    assert sentence in render_error("karrot", values)


def test_another_karrot_needs_no_token_of_this_release_and_may_get_the_cluster_that_this_one_polls() -> None:
    own = {"auth": {"username": "burrow", "password": "secret"}, "watch": EVALUATE}
    assert "env" not in _container(_values(to="http://karrot.lag") | own)


def test_the_notes_say_who_judges_the_groups() -> None:
    notes = render_text("karrot", "NOTES.txt", _values())
    assert "Spark judges the consumer groups of prod every 60s and posts to http://karrot.monitoring:80." in notes
    assert "No Burrow posts to Karrot yet" not in notes


def test_the_values_that_the_page_shows_are_accepted() -> None:
    page = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert only_object(render_chart("karrot", yaml.safe_load(shown)), "Deployment", NAME)


def test_the_verdicts_can_have_more_receivers() -> None:
    container = _container(_values(alsoTo=["kafka=verdicts", "tables"]))
    assert "--to=karrot=http://karrot.monitoring:80,kafka=verdicts,tables" in container["args"]
    assert "evaluate.alsoTo" in render_error("karrot", _values(alsoTo=["-"])).replace("/", ".")


def test_alerts_go_to_the_webhook_in_a_secret() -> None:
    values = _values(webhookSecret="hooks", alsoTo=["tables"])
    container = _container(values)
    assert {"--judge=burrow,stale", "--to=karrot=http://karrot.monitoring:80,tables,webhook"} <= {*container["args"]}
    reference = {"secretKeyRef": {"name": "hooks", "key": "url"}}
    assert {"name": "KARROT_STALE_WEBHOOK", "valueFrom": reference} in container["env"]
    values |= {"networkPolicy": {"enabled": True}, "pipeline": {"tables": "/lag/tables"}}
    assert ("any", [443]) in _egress(only_object(render_chart("karrot", values), "NetworkPolicy", NAME))
