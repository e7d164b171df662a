"""The chart refuses a wrong value with a sentence that says what to write."""

import json
from typing import Any

import helm_python as helm
import pytest

from support.kubernetes.helm_charts import CHARTS, load_chart, render_chart, render_error

AUTH = {"username": "burrow", "password": "secret"}
RULES = {"enabled": True}
MONITOR = {"enabled": True, "namespace": "prometheus"}
WATCH = {"enabled": True, "cluster": "prod"}
URL = "postgresql://karrot@db/karrot"
POSTGRES = {"config": {"event_log": URL}}
VERIFIED = {"config": {"event_log": f"{URL}?sslmode=verify-full"}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two pods without an event log in PostgreSQL": (
        {"replicaCount": 2},
        "at '/config': missing property 'event_log'",
    ),
    "two pods with an event log in memory": (
        {"replicaCount": 2, "config": {"event_log": "memory"}},
        "at '/config/event_log': 'memory' does not match pattern '^postgres(ql)?://'",
    ),
    "a number of pods in quotes": ({"replicaCount": "1"}, "at '/replicaCount': got string, want integer"),
    "a Secret for PostgreSQL without PostgreSQL": (
        {"postgresql": {"existingSecret": "db"}},
        "postgresql: its values need config.event_log: postgresql://USER@HOST/DATABASE",
    ),
    "a password in the URL of PostgreSQL": (
        {"config": {"event_log": "postgresql://karrot:secret@db/karrot"}},
        "config.event_log has a password: put the password into a Secret",
    ),
    "a password among the parameters of PostgreSQL": (
        {"config": {"event_log": f"{URL}?password=secret"}},
        "config.event_log has a password: put the password into a Secret",
    ),
    "a Secret and a token of IAM for PostgreSQL": (
        {"config": {"event_log": URL, "event_log_rds_iam": "yes"}, "postgresql": {"existingSecret": "db"}},
        "postgresql.existingSecret excludes config.event_log_rds_iam",
    ),
    "two certificates of the authority": (
        VERIFIED | {"postgresql": {"caSecret": "ca", "caConfigMap": "ca"}},
        "postgresql.caSecret and postgresql.caConfigMap are set",
    ),
    "a certificate that PostgreSQL's client would not use": (
        POSTGRES | {"postgresql": {"caSecret": "ca"}},
        "need sslmode=verify-full in config.event_log",
    ),
    "verify-full without a certificate": (VERIFIED, "config.event_log has sslmode=verify-full or verify-ca: set"),
    "a volume with PostgreSQL": (
        POSTGRES | {"persistence": {"enabled": True}},
        "persistence: an event log in PostgreSQL needs no volume",
    ),
    "an archive in a folder with PostgreSQL": (
        {"config": {"event_log": URL, "reporters": ["archive"], "archive_dir": "/archive"}},
        "config.archive_dir: with PostgreSQL, the archive must be s3://BUCKET/PREFIX",
    ),
    "an event log in env": (
        {"env": {"KARROT_EVENT_LOG": URL}},
        "env.KARROT_EVENT_LOG: the chart sets it; use config.event_log",
    ),
    "an unknown value": ({"replicas": 1}, "additional properties 'replicas' not allowed"),
    "an unknown type of service": (
        {"service": {"type": "Nodeport"}},
        "value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'",
    ),
    "a port above 65535": ({"service": {"port": 70000}}, "at '/service/port': maximum: got 70,000, want 65,535"),
    "an unknown setting": (
        {"config": {"retentoin": "7d"}},
        "at '/config': additional properties 'retentoin' not allowed",
    ),
    "a secret among the settings": (
        {"config": {"api_token": "x"}},
        "at '/config': additional properties 'api_token' not allowed",
    ),
    "a tag as the digest": ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
    "a space in a quantity": (
        {"persistence": {"size": "4 GB"}},
        "at '/persistence/size': '4 GB' does not match pattern",
    ),
    "an interval without a unit": (
        {"serviceMonitor": {"interval": "30"}},
        "at '/serviceMonitor/interval': '30' does not match pattern",
    ),
    "a scrape that takes longer than its interval": (
        {"serviceMonitor": {"interval": "1m30s", "scrapeTimeout": "91s"}},
        "serviceMonitor.scrapeTimeout is 91s, longer than serviceMonitor.interval 1m30s: the Prometheus operator",
    ),
    "a scrape that takes longer than the default interval": (
        {"serviceMonitor": {"scrapeTimeout": "30001ms"}},
        "serviceMonitor.scrapeTimeout is 30001ms, longer than serviceMonitor.interval 30s",
    ),
    "a duration without a unit": (
        {"prometheusRule": {"thresholds": {"errorFor": "5"}}},
        "at '/prometheusRule/thresholds/errorFor': '5' does not match pattern",
    ),
    "an unknown threshold": ({"prometheusRule": {"thresholds": {"lag": 5}}}, "additional properties 'lag' not allowed"),
    "a threshold that is null": (
        {"prometheusRule": {"thresholds": {"lagSeconds": None}}},
        "missing property 'lagSeconds'",
    ),
    "a duration of 0": (
        {"prometheusRule": {"thresholds": {"vanishedWithin": "0m"}}},
        "at '/prometheusRule/thresholds/vanishedWithin': '0m' does not match pattern",
    ),
    "a runbook address with a space": (
        {"prometheusRule": {"runbookUrl": "https://wiki #1"}},
        "at '/prometheusRule/runbookUrl': 'https://wiki #1' does not match pattern",
    ),
    "an external address with a space": (
        {"prometheusRule": RULES, "config": {"external_url": "https://a: b"}},
        "check prometheusRule.runbookUrl and config.external_url",
    ),
    "a pattern among the disabled alerts": ({"prometheusRule": RULES | {"disabled": [".*"]}}, 'there is no alert ".*"'),
    "a port that is null": ({"service": {"port": None}}, "at '/service': missing property 'port'"),
    "a section that is null": ({"networkPolicy": None}, "missing property 'networkPolicy'"),
    "a colon in the username": (
        {"auth": {"username": "a:b", "password": "x"}},
        "at '/auth/username': 'a:b' does not match pattern",
    ),
    "a username without a password": (
        {"auth": {"username": "burrow"}},
        "auth.username and auth.password belong together",
    ),
    "a Secret and a password": (
        {"auth": AUTH | {"existingSecret": "mine"}},
        "auth.existingSecret excludes the other credentials",
    ),
    "metrics_auth without a token": ({"config": {"metrics_auth": True}}, "config.metrics_auth needs auth.apiToken"),
    "the word Yes for metrics_auth without a token": (
        {"config": {"metrics_auth": "Yes"}},
        "config.metrics_auth needs auth.apiToken",
    ),
    "a token in another namespace than the monitor": (
        {
            "config": {"metrics_auth": 1},
            "auth": {"apiToken": "t"},
            "serviceMonitor": MONITOR | {"namespace": "prom"},
        },
        "serviceMonitor.namespace: Prometheus needs the Secret",
    ),
    "watch without brokers": ({"watch": {"enabled": True}}, "watch.enabled needs watch.bootstrapServers"),
    "a broker without a port": (
        {"watch": WATCH | {"bootstrapServers": "kafka"}},
        'watch.bootstrapServers has "kafka": write HOST:PORT',
    ),
    "a broker with a scheme": (
        {"watch": WATCH | {"bootstrapServers": ["SSL://kafka:9093"]}},
        "write HOST:PORT, several separated by commas",
    ),
    "a ServiceMonitor and a PodMonitor": (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "Karrot would be scraped twice",
    ),
    "a route without a gateway": ({"httpRoute": {"enabled": True}}, "httpRoute.enabled needs httpRoute.parentRefs"),
    "an ingress without a host": ({"ingress": {"enabled": True}}, "ingress.enabled needs ingress.hosts"),
    "the bind address in env": (
        {"env": {"KARROT_BIND": ":80"}},
        "env.KARROT_BIND: the chart sets it; use bindAddress and containerPort",
    ),
    "a certificate in env": (
        {"env": {"KARROT_TLS_CERT": "/cert"}},
        "env.KARROT_TLS_CERT: the chart sets it; use tls.existingSecret",
    ),
    "a secret in env": ({"env": {"KARROT_BURROW_TOKEN": "t"}}, "env.KARROT_BURROW_TOKEN: the chart sets it; use auth"),
    "a space in the name of a variable": ({"env": {"A B": "c"}}, "invalid propertyName 'A B'"),
    "an unknown alert": ({"prometheusRule": RULES | {"disabled": ["KarotAbsent"]}}, 'there is no alert "KarotAbsent"'),
    "burrow without a cluster": ({"burrow": {"enabled": True}}, "config.cluster is empty"),
}


@pytest.mark.parametrize(("values", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused(values: dict[str, Any], sentence: str) -> None:
    assert sentence in render_error("karrot", values)


def test_two_pods_are_refused_even_if_the_schema_is_skipped(tmp_path: Any) -> None:
    copy = load_chart("karrot").save_dir(tmp_path)
    (tmp_path / "karrot" / "values.schema.json").unlink()
    sentence = "replicaCount: more than 1 needs config.event_log: postgresql://.*"
    with pytest.raises(helm.HelmRenderError, match=sentence):
        helm.Chart.load(copy).render({"replicaCount": 2})


def test_no_wrong_value_is_accepted_because_it_repeats_a_message() -> None:
    """Before, a message was a ``const`` in the schema, and so was an accepted value."""
    schema = load_chart("karrot").schema
    assert schema is not None
    assert '"const"' not in json.dumps({**schema, "properties": schema["properties"] | {"burrow": {}}})


def test_a_chart_without_burrow_says_so(tmp_path: Any) -> None:
    """Helm itself leaves out a missing dependency without a message."""
    load_chart("karrot").save_dir(tmp_path)
    for path in sorted((tmp_path / "karrot" / "charts").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(helm.HelmError, match="this copy of the chart lacks charts/burrow"):
        helm.Chart.load(tmp_path / "karrot").render({"burrow": {"enabled": True}})


def test_a_section_that_holds_only_comments_is_empty() -> None:
    """YAML reads ``config:`` with nothing below it as null, and Helm removes null values."""
    names = ("config", "env", "commonLabels", "commonAnnotations", "podLabels", "podAnnotations")
    assert render_chart("karrot", dict.fromkeys(names)) == render_chart("karrot")


def test_global_values_are_accepted() -> None:
    load_chart("karrot").render({"global": {"anything": 1}})
    assert (CHARTS / "karrot").is_dir()
