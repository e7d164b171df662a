"""The bridging rules translate between Karrot's series and other tools' series in a real Prometheus."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from support.burrow.recorded_bodies import recorded_body
from support.prometheus.bridging_rules import BRIDGED_TOOLS, bridging_rules
from support.prometheus.metrics_server import serve_metrics
from support.prometheus.prometheus_server import Prometheus, prometheus_binary, promql_string
from support.prometheus.promtool import parse_rules
from support.service.karrot_service import Service
from support.waiting import wait_for

BINARY = prometheus_binary() or ""
DATA = Path(__file__).resolve().parents[1] / "data" / "bridges"
WARN = recorded_body("karrot_v1.9.5_warn.json")
ODD = 'gruppe "eins"\nzwei/\\ü'

# Labels that Karrot's series do not have, and the labels of a scrape.
WITHOUT = {"member_host", "consumer_id", "client_id", "coordinator_id", "protocol", "protocol_type"}
OF_THE_SCRAPE = {"job", "instance", "bridge", "__name__"}
# The tool has it by topic, Karrot by group.
BY_GROUP = {
    *("klag_consumer_lag_max", "klag_consumer_lag_ms"),
    *("klag_consumer_lag_time_to_close_seconds", "klag_consumer_lag_velocity"),
}
# These tools have no cluster label; the scrape adds one.
NAMELESS = {"kminion", "kafka-exporter"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not BINARY, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN"),
]


def job(name: str, port: int) -> str:
    """Return the scrape job of one tool, with ``honor_labels`` as in every scrape of Karrot."""
    labels = ", labels: {cluster: prod-eu}" if name in NAMELESS else ""
    return f"""\
- job_name: {name}
  scrape_interval: 1s
  honor_labels: true
  metrics_path: /{name}
  static_configs: [{{targets: ["127.0.0.1:{port}"]{labels}}}]
"""


def canned(tool: str, lag_seconds: float) -> str:
    """Return the exposition of a tool; the lag in time is computed now from the recorded body of 2025."""
    text = (DATA / f"{tool}.prom").read_text(encoding="utf-8")
    return text.replace(" 1000000\n", f" {lag_seconds * 1000}\n").replace(" 1000\n", f" {lag_seconds}\n")


class Scraped(NamedTuple):
    """A Prometheus that scrapes Karrot and every other tool, with all rules of both directions; and the expositions."""

    prometheus: Prometheus
    said: Mapping[str, str]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    directory = tmp_path_factory.mktemp("migrating")
    rules = {
        (tool, as_karrot): bridging_rules(tool, as_karrot=as_karrot)
        for tool in BRIDGED_TOOLS
        for as_karrot in (False, True)
    }
    in_a_hurry = [text.replace("[5m]", "[30s]") for text in rules.values()]
    records = {
        (rule["record"], tool if as_karrot else "karrot")
        for (tool, as_karrot), text in rules.items()
        for rule in parse_rules(text)
    }
    all_made = " and on () ".join(f'count({name}{{bridge="{bridge}"}})' for name, bridge in sorted(records))
    with Service(directory / "data", workers="1", partition_metrics="true") as service:
        service.post(WARN)
        service.post(WARN.replace(b'"orders-svc"', json.dumps(ODD).encode()))
        lag_seconds = service.metric("karrot_consumer_lag_seconds", consumer="orders-svc") or 0
        said = {name: canned(name, lag_seconds) for name in (*BRIDGED_TOOLS, "watch")}
        with (
            serve_metrics({f"/{name}": text for name, text in said.items()}) as port,
            Prometheus(
                BINARY,
                directory / "prometheus",
                service.port,
                rules=in_a_hurry,
                jobs="".join(job(name, port) for name in said),
            ) as prometheus,
        ):
            wait_for(lambda: bool(prometheus.query(all_made)))
            yield Scraped(prometheus, said)


def bridged(tool: str, text: str) -> Iterator[Sample]:
    """Yield the tool's samples of the group that Karrot has too: no offsets, and only the partitions of a verdict."""
    names = {rule["record"] for rule in parse_rules(bridging_rules(tool))}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            of_the_group = "orders-svc" in sample.labels.values()
            listed = "0" not in {sample.labels.get("partition"), sample.labels.get("partition_id")}
            if sample.name in names and of_the_group and listed and sample.value >= 0:
                yield sample


def selector(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{', '.join(f'{label}={promql_string(value)}' for label, value in labels.items())}}}"


def the_only(prometheus: Prometheus, expression: str) -> dict[str, Any]:
    """Return the one sample of a query. A scrape that times out on a busy machine takes it away for a second."""
    found: list[dict[str, Any]] = []

    def is_one() -> bool:
        found[:] = prometheus.query(expression)
        return len(found) == 1

    wait_for(is_one)
    return found[0]


@pytest.mark.parametrize("tool", BRIDGED_TOOLS)
def test_queries_for_the_tool_find_karrot_s_series(tool: str, scraped: Scraped) -> None:
    samples = list(bridged(tool, scraped.said[tool]))
    assert {sample.name for sample in samples} == {rule["record"] for rule in parse_rules(bridging_rules(tool))}
    for sample in samples:
        gone = WITHOUT | ({"topic"} if sample.name in BY_GROUP else set())
        labels = {name: value for name, value in sample.labels.items() if name not in gone}
        expected = labels | ({"cluster": "prod-eu"} if tool in NAMELESS else {})
        found = the_only(scraped.prometheus, selector(sample.name, labels | {"bridge": "karrot"}))
        assert {name: found["metric"][name] for name in found["metric"].keys() - OF_THE_SCRAPE} == expected
        assert float(found["value"][1]) == pytest.approx(sample.value), sample.name


@pytest.mark.parametrize("tool", BRIDGED_TOOLS)
def test_the_tool_s_series_have_karrot_s_values_under_karrot_s_names(tool: str, scraped: Scraped) -> None:
    for rule in parse_rules(bridging_rules(tool, as_karrot=True)):
        name = rule["record"]
        # and no series that is not about lag
        theirs = the_only(scraped.prometheus, f"{name}{{bridge={promql_string(tool)}}}")
        ours = the_only(scraped.prometheus, f'{name}{{bridge="", cluster="prod-eu", consumer="orders-svc"}}')
        assert theirs["metric"].keys() == {"__name__", "bridge", "cluster", "consumer"}
        assert float(theirs["value"][1]) == pytest.approx(float(ours["value"][1]))


def test_bridging_rules_keep_names_of_any_kind(scraped: Scraped) -> None:
    lag = f'burrow_kafka_consumer_lag_total{{bridge="karrot", consumer_group={promql_string(ODD)}}}'
    assert float(the_only(scraped.prometheus, lag)["value"][1]) == 11_020


def test_a_group_that_is_not_stable_is_0_for_kminion(scraped: Scraped) -> None:
    found = the_only(scraped.prometheus, 'kminion_kafka_consumer_group_info{bridge="karrot", group_id="emptied"}')
    assert (found["metric"]["state"], found["value"][1]) == ("Empty", "0")


def test_every_rule_is_evaluated_and_none_reads_a_bridged_series(scraped: Scraped) -> None:
    def bridges() -> set[str]:
        return {each["metric"]["bridge"] for each in scraped.prometheus.query('count by (bridge) ({bridge!=""})')}

    wait_for(lambda: bridges() == {"karrot", *BRIDGED_TOOLS})
    wait_for(lambda: {rule["health"] for rule in scraped.prometheus.rules()} == {"ok"})
    assert re.findall(r"level=(?:warn|error).*", scraped.prometheus.said.read_text()) == []
