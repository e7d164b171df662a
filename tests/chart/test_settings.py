"""The chart renders an environment that Karrot accepts."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from karrot.settings.loading import load
from karrot.settings.options import OPTIONS, Settings
from support.kubernetes.helm_charts import (
    CHARTS,
    Manifest,
    load_chart,
    only_object,
    render_chart,
    render_values_file,
    values_files,
)
from support.kubernetes.pod_files import write_pod_files
from support.service.karrot_service import Service

SECRETS = {
    "karrot-credentials": {
        "username": "burrow",
        "password": "new",
        "old-password": "old",
        "token": "t",
        "api-token": "a",
    },
    "karrot-tls": {"tls.crt": "certificate", "tls.key": "key"},
    "kafka-client": {"client.properties": "security.protocol=SSL\n"},
    "karrot-db-app": {"password": "of the database"},
    "karrot-db-ca": {"ca.crt": "certificate", "ca.key": "key"},
    "more": {"KARROT_THREADS": "8"},
}


def environment(manifests: Sequence[Manifest], root: Path) -> dict[str, str]:
    """Return the environment of Karrot's container, with its file system below ``root``."""
    others = ("-pipeline.yaml", "-evaluate.yaml")
    own = [each for each in manifests if "/charts/" not in each.template and not each.template.endswith(others)]
    return write_pod_files(only_object(own, "Deployment")["spec"]["template"], own, SECRETS, root).environment


@pytest.mark.parametrize("shape", values_files("karrot"), ids=lambda path: path.stem)
def test_every_shape_is_accepted_without_an_unexpected_warning(shape: Path, tmp_path: Path) -> None:
    told = environment(render_values_file(shape), tmp_path)
    settings, warnings, _ = load(told)
    # A pod listens on every address, and not every shape sets passwords. Karrot may warn about that and nothing else.
    assert [each for each in warnings if not each.startswith("KARROT_BIND is 0.0.0.0:")] == []
    assert (settings.data_dir == tmp_path / "data") is not settings.is_on_postgresql


def settings_of(values: dict[str, Any], root: Path) -> Settings:
    return load(environment(render_chart("karrot", values), root)).settings


@pytest.mark.parametrize(
    ("written", "host"),
    [("::", "::"), ("[::]", "::"), ("::1", "::1"), ("0.0.0.0", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")],
)
def test_karrot_takes_the_address_to_listen_on_with_and_without_brackets(
    written: str, host: str, tmp_path: Path
) -> None:
    assert settings_of({"bindAddress": written}, tmp_path).bind == (host, 5000)


def test_values_reach_karrot_unchanged(tmp_path: Path) -> None:
    config = {
        "retention": "7d",
        "max_consumers": 10_000_000,
        "partition_metrics": True,
        "cloudwatch_min_complete": 0.5,
        "expected_clusters": ["prod-eu", "prod-us"],
        "exclude_consumers": "^a.*\\d$",
        "reporters": ["prometheus", "cloudwatch"],
    }
    settings = settings_of({"config": config}, tmp_path)
    assert (settings.retention, settings.max_consumers, settings.partition_metrics) == (7 * 86_400, 10_000_000, True)
    assert (settings.cloudwatch.min_complete, settings.expected_clusters) == (0.5, ("prod-eu", "prod-us"))
    assert (settings.exclude_consumers.pattern if settings.exclude_consumers else None) == "^a.*\\d$"


def test_every_setting_has_one_place_in_the_values() -> None:
    """The place is ``config`` or one of the chart's own values."""
    schema = load_chart("karrot").schema
    assert schema is not None
    listed = set(schema["properties"]["config"]["properties"])
    own = {"bind", "data_dir", "tls_cert", "tls_key", "kafka_properties", "burrow_username", "event_log_password_file"}
    own |= {each.key for each in OPTIONS if each.is_secret or each.key.startswith("watch_")}
    assert listed | own == {each.key for each in OPTIONS}
    assert not listed & own


def test_watching_needs_two_values(tmp_path: Path) -> None:
    settings = settings_of(
        {"watch": {"enabled": True, "bootstrapServers": ["a:1", "b:2"], "cluster": "prod"}}, tmp_path
    )
    assert (settings.watch_bootstrap, settings.watch_cluster) == (("a:1", "b:2"), "prod")


def test_the_patterns_of_watch_are_values_and_the_old_name_stays(tmp_path: Path) -> None:
    watch = {"enabled": True, "bootstrapServers": "a:1", "cluster": "prod"}
    named = {"groups": "g", "excludeGroups": "x", "topics": "t", "excludeTopics": "u", "offsetsElsewhere": "e"}
    settings = settings_of({"watch": watch | named}, tmp_path)
    patterns = (
        settings.watch_groups,
        settings.watch_exclude_groups,
        settings.watch_topics,
        settings.watch_exclude_topics,
        settings.watch_offsets_elsewhere,
    )
    assert [each and each.pattern for each in patterns] == ["g", "x", "t", "u", "e"]
    old = settings_of({"watch": watch | {"exclude": "^console-"}}, tmp_path / "old").watch_exclude_groups
    assert old is not None
    assert old.pattern == "^console-"


def test_the_kafka_reporter_finds_its_properties_in_a_secret(tmp_path: Path) -> None:
    config = {"reporters": "kafka", "kafka_bootstrap": "a:1"}
    settings = settings_of({"config": config, "kafka": {"existingSecret": "kafka-client"}}, tmp_path)
    assert settings.kafka.properties is not None
    assert settings.kafka.properties.read_text() == "security.protocol=SSL\n"


def test_karrot_resyncs_from_the_burrow_in_the_same_release(tmp_path: Path) -> None:
    told = environment(render_values_file(CHARTS / "karrot" / "ci" / "with-burrow.yaml"), tmp_path)
    assert told["KARROT_BURROW_URL"] == "http://karrot-burrow.monitoring:8000"


def test_the_environment_variables_of_2019_have_the_defaults_of_2019(tmp_path: Path) -> None:
    old = {"karrot": {"env": {"AWS_ACCESS_KEY_ID": "k", "KARROT_LOG": "DEBUG"}}}
    settings = settings_of(old, tmp_path)
    assert (settings.compat, settings.log, "cloudwatch" in settings.reporters) == ("2019", "DEBUG", True)
    chosen = settings_of(old | {"config": {"reporters": "prometheus"}}, tmp_path / "chosen")
    assert (chosen.compat, chosen.reporters) == (None, ("prometheus",))


def test_helm_test_posts_a_sample_and_reads_it_back(tmp_path: Path) -> None:
    """Run the commands of the test's pod against a service that runs with the rendered environment."""
    values = {
        "auth": {"username": "burrow", "password": 'not: a "good" one', "apiToken": "for-the-pages"},
        "config": {"workers": 1, "threads": 4, "expected_clusters": ["prod"]},
    }
    manifests = render_chart("karrot", values)
    told = environment(manifests, tmp_path)
    own = {name.removeprefix("KARROT_").lower(): value for name, value in told.items() if name != "KARROT_BIND"}
    [test] = [each.body for each in manifests if each.is_test]
    service = only_object(manifests, "Service")
    address = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}:80"
    with Service(Path(told["KARROT_DATA_DIR"]), arguments=(), **own) as karrot:
        for container in [*test["spec"]["initContainers"], *test["spec"]["containers"]]:
            written = [*container.get("command", ["karrot"]), *container["args"]]
            assert any(address in each for each in written)
            command = [
                each.replace(address, f"http://127.0.0.1:{karrot.port}")
                .replace("$(KARROT_BURROW_USERNAME)", told["KARROT_BURROW_USERNAME"])
                for each in written
            ]  # fmt: skip
            program = {"karrot": [sys.executable, "-m", "karrot"], "python3": [sys.executable]}[command[0]]
            done = subprocess.run(
                [*program, *command[1:]], env=os.environ | told, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
        assert '"consumer":"sample-group-1"' in done.stdout.replace(" ", "")
