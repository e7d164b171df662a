"""A real Prometheus returns every sample that Karrot exposes for the recorded bodies."""

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.burrow.malformed_bodies import unusual_group_names
from support.burrow.recorded_bodies import expected_events, recorded_body, recorded_posts
from support.prometheus.grafana_dashboards import DASHBOARDS, substitute_variables
from support.prometheus.prometheus_server import Prometheus, prometheus_binary
from support.service.karrot_service import Service
from support.waiting import wait_for

BINARY = prometheus_binary() or ""
# Their values change during the test.
OF_KARROT_ITSELF = re.compile(r"karrot_(?!consumer_|partition_)|process_")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not BINARY, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN"),
]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped(NamedTuple):
    service: Service
    prometheus: Prometheus


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Start a Karrot, post every recorded body to it, and scrape it with a Prometheus."""
    directory = tmp_path_factory.mktemp("exposition")
    with Service(directory / "data", partition_metrics="true", topic_metrics="true", stale_after="1h") as service:
        for body in (*map(recorded_body, expected_events()), *(body for _, body in recorded_posts())):
            service.post(body)
        known = service.metric("karrot_consumers")
        with Prometheus(BINARY, directory / "prometheus", service.port) as prometheus:
            wait_for(lambda: prometheus.number("karrot_consumers") == known)
            yield Scraped(service, prometheus)


def exposed(service: Service) -> Samples:
    """Return the samples of groups on /metrics, without empty labels, which Prometheus drops."""
    text = service.get("/metrics", {"Accept": "text/plain"}).body.decode()
    return {
        (sample.name, frozenset(label for label in sample.labels.items() if label[1])): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not OF_KARROT_ITSELF.match(sample.name)
    }


def test_every_sample_of_a_group_comes_back_with_its_labels_and_its_value(scraped: Scraped) -> None:
    stored: Samples = {}
    for each in scraped.prometheus.query('{__name__=~"karrot_(consumer|partition)_.+"}'):
        labels = {name: value for name, value in each["metric"].items() if name not in {"__name__", "job", "instance"}}
        stored[each["metric"]["__name__"], frozenset(labels.items())] = float(each["value"][1])
    asked = exposed(scraped.service)
    assert len(asked) > 300
    assert stored == asked


def test_a_dashboard_finds_every_group_with_a_name_that_grafana_can_write_into_a_query(scraped: Scraped) -> None:
    """Grafana does not escape quotes and control characters of a chosen value, so such names are left out."""
    [body] = [recorded_body(name) for name in expected_events() if name == "karrot_v1.9.5_warn.json"]
    writable = [
        name
        for name in unusual_group_names()
        if name.isprintable() and 0 < len(name) <= 512 and not set("'\"") & set(name)
    ]
    assert len(writable) > 100
    for name in writable:
        scraped.service.post(body.replace(b'"orders-svc"', _as_json(name)))
    wanted = set(writable)
    wait_for(lambda: wanted <= scraped.prometheus.label_values("consumer"))
    for name in writable:
        for board, escape in (("group", _exact), ("overview", _as_regex)):
            panels = [panel for panel in DASHBOARDS[board]["panels"] if panel["title"] in {"Lag", "Lag of all groups"}]
            chosen = {"cluster": "prod-eu", "consumer": escape(name)}
            query = substitute_variables(panels[0]["targets"][0]["expr"], DASHBOARDS[board], chosen)
            # A series appears shortly before its first sample.
            wait_for(partial(_has_value, scraped, query))


def _has_value(scraped: Scraped, query: str) -> bool:
    return scraped.prometheus.number(query) is not None


def _as_json(name: str) -> bytes:
    escapes = name.encode("utf-16-be")
    units = (escapes[at : at + 2] for at in range(0, len(escapes), 2))
    return b'"' + b"".join(b"\\u" + unit.hex().encode() for unit in units) + b'"'


def _exact(value: str) -> str:
    """Escape like Grafana 12's ``prometheusRegularEscape``, for a variable with one value."""
    return value.replace("\\", "\\\\")


def _as_regex(value: str) -> str:
    """Escape like Grafana 12's ``prometheusSpecialRegexEscape``, for a variable with several values."""
    return re.sub(r"[$^*{}\[\]+?.()|]", lambda found: "\\\\" + found[0], value.replace("\\", "\\\\\\\\"))
