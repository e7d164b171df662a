"""The chart refuses a wrong value with a sentence that says what to write."""

from typing import Any

import helm_python as helm
import pytest

from support.kubernetes.helm_charts import CHARTS, load_chart, render_chart, render_error

AUTH = {"username": "burrow", "password": "secret"}
RULES = {"enabled": True}
MONITOR = {"enabled": True, "namespace": "prometheus"}
WATCH = {"enabled": True, "cluster": "prod"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"replicaCount": 2}, "at most 1, until the event log can live in PostgreSQL"),
        ({"replicaCount": "1"}, "at most 1, until the event log can live in PostgreSQL"),
        ({"replicas": 1}, "additional properties 'replicas' not allowed"),
        ({"service": {"type": "Nodeport"}}, "value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'"),
        ({"service": {"port": 70000}}, "at '/service/port': maximum: got 70,000, want 65,535"),
        ({"config": {"retentoin": "7d"}}, "at '/config': additional properties 'retentoin' not allowed"),
        ({"config": {"api_token": "x"}}, "at '/config': additional properties 'api_token' not allowed"),
        ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
        ({"persistence": {"size": "4 GB"}}, "a quantity, such as 4Gi"),
        ({"serviceMonitor": {"interval": "30"}}, "a duration of Prometheus, such as 30s"),
        ({"prometheusRule": {"thresholds": {"errorFor": "5"}}}, "a duration of Prometheus, such as 5m"),
        ({"prometheusRule": {"thresholds": {"lag": 5}}}, "additional properties 'lag' not allowed"),
        ({"prometheusRule": {"thresholds": {"lagSeconds": None}}}, "missing property 'lagSeconds'"),
        ({"prometheusRule": {"thresholds": {"vanishedWithin": "0m"}}}, "a duration of Prometheus, such as 5m"),
        ({"prometheusRule": {"runbookUrl": "https://wiki #1"}}, "an http:// or https:// address"),
        (
            {"prometheusRule": RULES, "config": {"external_url": "https://a: b"}},
            "check prometheusRule.runbookUrl and config.external_url",
        ),
        ({"prometheusRule": RULES | {"disabled": [".*"]}}, 'there is no alert ".*"'),
        ({"service": {"port": None}}, "at '/service': missing property 'port'"),
        ({"networkPolicy": None}, "missing property 'networkPolicy'"),
        ({"auth": {"username": "a:b", "password": "x"}}, "a name without a colon"),
        ({"auth": {"username": "burrow"}}, "auth.username and auth.password belong together"),
        ({"auth": AUTH | {"existingSecret": "mine"}}, "auth.existingSecret excludes the other credentials"),
        ({"config": {"metrics_auth": True}}, "config.metrics_auth needs auth.apiToken"),
        ({"config": {"metrics_auth": "Yes"}}, "config.metrics_auth needs auth.apiToken"),
        (
            {
                "config": {"metrics_auth": 1},
                "auth": {"apiToken": "t"},
                "serviceMonitor": MONITOR | {"namespace": "prom"},
            },
            "serviceMonitor.namespace: Prometheus needs the Secret",
        ),
        ({"watch": {"enabled": True}}, "watch.enabled needs watch.bootstrapServers"),
        ({"watch": WATCH | {"bootstrapServers": "kafka"}}, 'watch.bootstrapServers has "kafka": write HOST:PORT'),
        ({"watch": WATCH | {"bootstrapServers": ["SSL://kafka:9093"]}}, "write HOST:PORT, several separated by commas"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "Karrot would be scraped twice"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.enabled needs httpRoute.parentRefs"),
        ({"ingress": {"enabled": True}}, "ingress.enabled needs ingress.hosts"),
        ({"env": {"KARROT_BIND": ":80"}}, "env.KARROT_BIND: the chart sets it; use bindAddress and containerPort"),
        ({"env": {"KARROT_TLS_CERT": "/cert"}}, "env.KARROT_TLS_CERT: the chart sets it; use tls.existingSecret"),
        ({"env": {"KARROT_BURROW_TOKEN": "t"}}, "env.KARROT_BURROW_TOKEN: the chart sets it; use auth"),
        ({"env": {"A B": "c"}}, "invalid propertyName 'A B'"),
        ({"prometheusRule": RULES | {"disabled": ["KarotAbsent"]}}, 'there is no alert "KarotAbsent"'),
        ({"burrow": {"enabled": True}}, "config.cluster is empty"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(values: dict[str, Any], sentence: str) -> None:
    assert sentence in render_error("karrot", values)


def test_two_pods_are_refused_even_if_the_schema_is_skipped(tmp_path: Any) -> None:
    copy = load_chart("karrot").save_dir(tmp_path)
    (tmp_path / "karrot" / "values.schema.json").unlink()
    with pytest.raises(helm.HelmRenderError, match="two pods would each have half of the events"):
        helm.Chart.load(copy).render({"replicaCount": 2})


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
