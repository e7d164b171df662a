"""The files for docker compose are valid, as far as that can be checked without starting other projects' images."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from karrot.cli import main
from karrot.render import burrow_config, burrow_template
from karrot.render.prometheus_rules import alert_rules, recording_rules
from karrot.settings.options import OPTIONS
from support.prometheus.promtool import promtool
from support.published_schemas import assert_matches_schema
from support.service.karrot_service import Service
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "examples" / "compose"


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    named: dict[str, dict[str, Any]] = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())["services"]
    return named


@pytest.fixture(params=["compose.yaml", "replicas.yaml"])
def file(request: pytest.FixtureRequest) -> Path:
    return DIRECTORY / str(request.param)


@pytest.fixture
def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def test_compose_accepts_the_file(file: Path) -> None:
    assert_matches_schema("compose-spec", file)


def test_the_profiles_are_complete(services: dict[str, dict[str, Any]]) -> None:
    both = {"karrot", "rules", "prometheus", "grafana"}
    assert {name for name, each in services.items() if "demo" in each["profiles"]} == both | {"fake-burrow"}
    kafka = {"kafka", "zookeeper", "burrow", "producer", "slow-consumer"}
    assert {name for name, each in services.items() if "kafka" in each["profiles"]} == both | kafka
    for name, each in services.items():
        for needed in each.get("depends_on", {}):
            assert set(each["profiles"]) <= set(services[needed]["profiles"]), f"{name} needs {needed}"


def test_a_service_that_others_wait_for_has_a_health_check(read: dict[str, Any]) -> None:
    services = read["services"]
    for each in services.values():
        for needed, how in each.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[needed], needed


def test_every_mounted_path_exists(read: dict[str, Any]) -> None:
    sources = {volume.split(":")[0] for each in read["services"].values() for volume in each.get("volumes", ())}
    sources |= {each["file"] for each in read.get("secrets", {}).values()}
    files = {source for source in sources if source.startswith(".")}
    assert {source for source in files if not (DIRECTORY / source).exists()} == set()
    assert sources - files == set(read["volumes"])


def test_only_this_machine_reaches_the_ports(file: Path, read: dict[str, Any]) -> None:
    ports = [port for each in read["services"].values() for port in each.get("ports", ())]
    reached = (3000, 5000, 9090) if file.name == "compose.yaml" else (5000,)
    assert sorted(ports) == [f"127.0.0.1:{port}:{port}" for port in reached]


def test_karrot_runs_like_a_pod_and_knows_its_settings(services: dict[str, dict[str, Any]]) -> None:
    ours = [each for each in services.values() if each["image"] == "${KARROT_IMAGE:-karrot}"]
    assert len(ours) == 5
    for each in ours:
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
        assert each["security_opt"] == ["no-new-privileges:true"]
    assert services["karrot"]["environment"].keys() <= {option.name for option in OPTIONS}


def test_prometheus_accepts_its_configuration_with_the_rules(tmp_path: Path) -> None:
    shutil.copy(DIRECTORY / "prometheus" / "prometheus.yml", tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "alerts.yaml").write_text(alert_rules(external_url="http://localhost:5000"))
    (tmp_path / "rules" / "recordings.yaml").write_text(recording_rules())
    assert "2 rule files found" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_rules_and_dashboards_are_written_by_existing_commands(services: dict[str, dict[str, Any]]) -> None:
    [script] = services["rules"]["command"]
    for command, kind in re.findall(r"^karrot (.*?) > /data/\w+\.(\w+)$", script, re.MULTILINE):
        printed = CliRunner().invoke(main, command.split(), catch_exceptions=False)
        read = json.loads(printed.stdout) if kind == "json" else yaml.safe_load(printed.stdout)
        assert ("panels" if kind == "json" else "groups") in read
    assert script.count("karrot render") == 5


def test_grafana_opens_with_one_of_the_written_dashboards(services: dict[str, dict[str, Any]]) -> None:
    [script], grafana = services["rules"]["command"], services["grafana"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    provider = yaml.safe_load((DIRECTORY / "grafana/provisioning/dashboards/karrot.yaml").read_text())["providers"][0]
    assert home == f"{provider['options']['path']}/overview.json"
    assert "> /data/overview.json" in script
    assert f"rules:{provider['options']['path']}:ro" in grafana["volumes"]


def test_burrow_gets_the_notifier_and_the_template_that_karrot_prints() -> None:
    config = tomllib.loads((DIRECTORY / "burrow" / "burrow.toml").read_text())
    assert config["notifier"] == tomllib.loads(burrow_config("http://karrot:5000/burrow"))["notifier"]
    assert (DIRECTORY / "burrow" / "karrot.tmpl").read_text() == burrow_template()
    assert config["consumer"]["compose"]["cluster"] == "compose"
    assert config["cluster"]["compose"]["servers"] == config["consumer"]["compose"]["servers"] == ["kafka:9092"]


def test_the_simulated_burrow_posts_to_a_karrot(tmp_path: Path) -> None:
    with Service(tmp_path / "data", workers="1") as service:
        command = [sys.executable, str(DIRECTORY / "fake_burrow.py"), f"http://127.0.0.1:{service.port}/burrow"]
        with subprocess.Popen([*command, "--groups", "6", "--speed", "20"], stdout=subprocess.DEVNULL) as burrow:
            try:
                wait_for(lambda: (service.metric("karrot_consumers") or 0) >= 6 or burrow.poll() is not None)
            finally:
                burrow.terminate()
            assert burrow.wait(20) == 0
