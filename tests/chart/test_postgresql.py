"""Several pods share an event log in PostgreSQL: no volume, always a ready pod, and files for the password."""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from karrot.eventlog.postgres.connections import DatabaseUrl
from karrot.settings.loading import load
from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import DATABASE, PASSWORD, USER
from support.eventlog.postgres_tls import make_authority, running_postgres_with_tls
from support.kubernetes.helm_charts import CHARTS, ROOT, only_object, render_chart, render_text, render_values_file
from support.kubernetes.kubernetes_schemas import schema_errors
from support.kubernetes.pod_files import write_pod_files
from support.servers.background_server import serve_in_thread
from support.service.karrot_service import Service

EXAMPLE = ROOT / "examples" / "cloudnativepg"
URL = "postgresql://karrot@db/karrot"
ONE: dict[str, Any] = {"config": {"event_log": URL}}
TWO = ONE | {"replicaCount": 2}


def deployment(values: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = only_object(render_chart("karrot", values), "Deployment")["spec"]
    return body


def pod(values: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(values)["template"]["spec"]
    return spec


@pytest.mark.parametrize("values", [ONE, TWO], ids=["one pod", "two pods"])
def test_a_new_pod_is_ready_before_an_old_one_ends(values: dict[str, Any]) -> None:
    assert deployment(values)["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_a_pod_that_ends_serves_until_the_service_leaves_it_out() -> None:
    [container] = pod(ONE)["containers"]
    assert container["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    [alone] = pod({})["containers"]
    assert "lifecycle" not in alone, "no other pod serves in this time"


def test_several_pods_are_spread_over_zones_and_nodes_unless_the_values_say_how() -> None:
    spread = pod(TWO)["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    selected = deployment(TWO)["selector"]["matchLabels"]
    assert [each["labelSelector"]["matchLabels"] for each in spread] == [selected, selected]
    assert "topologySpreadConstraints" not in pod(ONE)
    own = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    assert pod(TWO | {"topologySpreadConstraints": [own]})["topologySpreadConstraints"] == [own]


@pytest.mark.parametrize(
    ("values", "budgets"),
    [
        pytest.param({}, 0, id="one pod"),
        pytest.param({"podDisruptionBudget": {"enabled": True}}, 1, id="one pod, on request"),
        pytest.param(TWO, 1, id="two pods"),
        pytest.param(TWO | {"podDisruptionBudget": {"enabled": False}}, 0, id="two pods, not on request"),
    ],
)
def test_several_pods_have_a_disruption_budget(values: dict[str, Any], budgets: int) -> None:
    found = [each.body["spec"] for each in render_chart("karrot", values) if each.kind == "PodDisruptionBudget"]
    assert len(found) == budgets
    assert [(each["maxUnavailable"], each["unhealthyPodEvictionPolicy"]) for each in found] == [
        (1, "AlwaysAllow")
    ] * budgets


def test_the_notes_say_where_the_leader_is_shown() -> None:
    sentence = "http://karrot.monitoring:80/reporters shows which pod leads."
    assert sentence in render_text("karrot", "NOTES.txt", TWO)
    assert sentence not in render_text("karrot", "NOTES.txt")


@pytest.mark.parametrize("kind", ["caSecret", "caConfigMap"])
def test_the_password_and_the_certificate_are_files_of_karrot_s_container_alone(kind: str) -> None:
    values: dict[str, Any] = {
        "config": {"event_log": f"{URL}?sslmode=verify-full"},
        "postgresql": {"existingSecret": "db", "passwordKey": "pw", kind: "authority", "caKey": "root.pem"},
    }
    manifests = render_chart("karrot", values)
    spec = only_object(manifests, "Deployment")["spec"]["template"]["spec"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "postgresql"]
    source = "secret" if kind == "caSecret" else "configMap"
    assert volume["projected"] == {
        "defaultMode": 0o440,
        "sources": [
            {"secret": {"name": "db", "items": [{"key": "pw", "path": "password"}]}},
            {source: {"name": "authority", "items": [{"key": "root.pem", "path": "ca.crt"}]}},
        ],
    }
    told = only_object(manifests, "ConfigMap")["data"]
    assert told["KARROT_EVENT_LOG_PASSWORD_FILE"] == "/etc/karrot/postgresql/password"
    assert told["PGSSLROOTCERT"] == "/etc/karrot/postgresql/ca.crt"
    [test] = [each.body for each in manifests if each.is_test]
    assert "postgresql" not in {each["name"] for each in test["spec"]["volumes"]}


def test_karrot_starts_with_the_rendered_files_and_checks_the_certificate_of_a_real_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_postgres_with_tls() as (database, authority):
        url = f"postgresql://{USER}@localhost:{database.port}/{DATABASE}?sslmode=verify-full"
        values = {
            "config": {"event_log": url, "workers": 1, "threads": 4},
            "postgresql": {"existingSecret": "db", "caSecret": "ca"},
        }
        manifests = render_chart("karrot", values)
        secrets = {"db": {"password": PASSWORD}, "ca": {"ca.crt": authority}}
        template = only_object(manifests, "Deployment")["spec"]["template"]
        told = write_pod_files(template, manifests, secrets, tmp_path).environment
        monkeypatch.setenv("PGSSLROOTCERT", told["PGSSLROOTCERT"])
        own = {name.removeprefix("KARROT_").lower(): value for name, value in told.items() if name != "KARROT_BIND"}
        with Service(tmp_path / "none", arguments=(), **own) as karrot, database.connect() as connection:
            assert karrot.post(warn_body("orders")).status == 202
            encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname = %s"
            assert connection.execute(encrypted, (DATABASE,)).fetchone() == (True,)
            assert not (tmp_path / "none").exists(), "Karrot needs no data directory"
        (tmp_path / "etc/karrot/postgresql/ca.crt").write_text(make_authority(tmp_path, "stranger"))
        refused = Service(tmp_path / "none", arguments=(), **own).start(wait=False)
        assert refused.process is not None
        assert refused.process.wait(30) != 0
        assert "certificate verify failed" in refused.said.read_text()


class TestTheExampleWithCloudNativePG:
    VALUES: dict[str, Any] = yaml.safe_load((EXAMPLE / "values.yaml").read_text(encoding="utf-8"))
    CLUSTER: dict[str, Any] = yaml.safe_load((EXAMPLE / "cluster.yaml").read_text(encoding="utf-8"))

    def test_the_operator_knows_every_field(self) -> None:
        assert schema_errors(self.CLUSTER) == []

    def test_karrot_uses_the_service_the_database_and_the_secrets_of_the_cluster(self, tmp_path: Path) -> None:
        name, initdb = self.CLUSTER["metadata"]["name"], self.CLUSTER["spec"]["bootstrap"]["initdb"]
        secrets = {f"{name}-app": {"password": "p"}, f"{name}-ca": {"ca.crt": "c"}}
        manifests = render_chart("karrot", self.VALUES)
        template = only_object(manifests, "Deployment")["spec"]["template"]
        told = write_pod_files(template, manifests, secrets, tmp_path).environment
        settings = load(told).settings
        parameters = DatabaseUrl.parse(settings.event_log).parameters
        assert [parameters[each] for each in ("host", "user", "dbname", "sslmode")] == [
            *(f"{name}-rw", initdb["owner"], initdb["database"], "verify-full")
        ]
        assert settings.event_log_password_file is not None
        assert settings.event_log_password_file.read_text() == "p"
        assert Path(told["PGSSLROOTCERT"]).read_text() == "c"

    def test_a_promotion_loses_no_acknowledged_event(self) -> None:
        synchronous = self.CLUSTER["spec"]["postgresql"]["synchronous"]
        assert (synchronous["dataDurability"], synchronous["failoverQuorum"]) == ("required", True)
        assert self.CLUSTER["spec"]["instances"] > synchronous["number"] + 1, "one standby can be away"

    def test_the_tested_values_name_the_same_objects(self) -> None:
        told = only_object(render_values_file(CHARTS / "karrot" / "ci" / "postgresql.yaml"), "ConfigMap")["data"]
        assert told["KARROT_EVENT_LOG"] == self.VALUES["config"]["event_log"]


def test_helm_test_waits_until_the_pod_that_answers_knows_the_sample() -> None:
    answers = iter([404, 404, 200])

    class Follower(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(answers))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    program = CHARTS / "karrot" / "files" / "read_back.py"
    with serve_in_thread(HTTPServer(("127.0.0.1", 0), Follower)) as port:
        command = [sys.executable, str(program), f"http://127.0.0.1:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, list(answers)) == (0, "200 \n", []), done.stderr
