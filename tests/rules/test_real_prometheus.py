"""The shipped rules and the examples' queries work in a real Prometheus that scrapes a running Karrot."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus, urlsplit

import pytest

from karrot.render.prometheus_rules import alert_rules, recording_rules
from support.burrow.recorded_bodies import recorded_body
from support.prometheus.prometheus_server import Prometheus, prometheus_binary
from support.prometheus.scaling_queries import scaling_queries
from support.service.karrot_service import Service
from support.waiting import wait_for

BINARY = prometheus_binary() or ""
KARROT = "https://karrot.example.org"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not BINARY, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN"),
]


def in_a_hurry(**changed: str) -> tuple[str, str]:
    """Return both rules files with seconds instead of minutes and hours."""
    brief = {"errorFor": "1s", "lagGrowthFor": "1s", "catchUpFor": "1s", "partitionStoppedFor": "1s"} | changed
    alerts = re.sub(r"\bfor: \w+", "for: 1s", alert_rules(changed=brief, external_url=KARROT))
    return tuple(re.sub(r"\[\w+:1m\]", "[30s:1s]", text) for text in (alerts, recording_rules()))  # type: ignore[return-value]


def unhealthy(prometheus: Prometheus) -> list[str]:
    """Return the rules that were not evaluated, or failed."""
    return [f"{rule['name']}: {rule.get('lastError')}" for rule in prometheus.rules() if rule["health"] != "ok"]


def firing(prometheus: Prometheus) -> set[str]:
    return {alert["labels"]["alertname"] for alert in prometheus.alerts()}


@pytest.fixture
def demo_port(tmp_path: Path) -> Iterator[int]:
    said = tmp_path / "said.txt"
    command = [sys.executable, "-m", "karrot", "demo", "--groups", "12", "--speed", "5", "--port", "0"]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as demo:
        wait_for(lambda: "Ctrl-C stops everything" in said.read_text(), 60)
        port = urlsplit(next(word for word in said.read_text().split() if word.startswith("http://"))).port
        assert port is not None
        yield port
        demo.terminate()


def test_the_demo_s_incidents_fire_the_alerts_on_groups_and_none_on_burrow_or_karrot(
    demo_port: int, tmp_path: Path
) -> None:
    rules = in_a_hurry(lagSeconds="3", lagGrowth="0.01", incidentsPerHour="0")
    expected = {"KarrotConsumerError", "KarrotConsumerLagGrowing", "KarrotPartitionStopped", "KarrotConsumerFlapping"}
    seen: set[str] = set()
    with Prometheus(BINARY, tmp_path / "prometheus", demo_port, rules=rules) as prometheus:

        def has_fired() -> bool:
            seen.update(firing(prometheus))
            return expected <= seen

        wait_for(has_fired, 100)
        assert unhealthy(prometheus) == []
        assert not {name for name in seen if name.startswith(("KarrotBurrow", "KarrotLog", "KarrotCloudWatch"))}
        assert "KarrotOnlyUnhealthyVerdicts" not in seen
        [error, *_] = [each for each in prometheus.alerts() if each["labels"]["alertname"] == "KarrotConsumerError"]
        page = f"{KARROT}/group?cluster={{}}&consumer={{}}"
        names = (quote_plus(error["labels"][name]) for name in ("cluster", "consumer"))
        assert error["annotations"]["karrot_url"] == page.format(*names)
        for rule in prometheus.rules():
            if rule["type"] == "recording":
                assert prometheus.query(rule["name"]), f"{rule['name']} has no series"


def test_an_unheard_cluster_and_refused_events_fire_alerts_and_scaling_sees_the_lag(tmp_path: Path) -> None:
    with (
        Service(tmp_path / "data", expected_clusters="dr") as service,
        Prometheus(BINARY, tmp_path / "prometheus", service.port, rules=in_a_hurry(rejectedEvents="0")) as prometheus,
    ):
        service.post(recorded_body("karrot_v1.9.5_warn.json"))
        service.post(recorded_body("default_post_v1.9.5_warn.json"))
        wait_for(lambda: firing(prometheus) >= {"KarrotBurrowSilent", "KarrotRejectingEvents"}, 60)
        told = {each["labels"]["alertname"]: each for each in prometheus.alerts()}
        silent = told["KarrotBurrowSilent"]
        assert silent["labels"]["cluster"] == "dr"
        assert silent["annotations"]["description"].startswith("No verdict on dr has come from Burrow yet.")
        assert told["KarrotRejectingEvents"]["labels"]["code"] == "unsupported_template"
        [group] = service.get("/api/v1/groups").json["groups"]
        asked = {name: prometheus.number(query) for name, query in scaling_queries().items()}
        assert asked == {
            "hpa.yaml": group["scalable_lag"],
            "scaledobject.yaml": group["scalable_lag"],
            "scaledobject-seconds.yaml": group["lag_seconds"],
        }
        assert unhealthy(prometheus) == []
        service.stop()
        wait_for(lambda: "KarrotAbsent" in firing(prometheus), 60)
