"""The settings of `watch` in the service are checked."""

import sys
from pathlib import Path

import pytest

from karrot.settings.loading import SettingsError, load
from karrot.settings.options import Settings, effective
from karrot.wiring import try_out
from support.burrow.recorded_bodies import warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for

WATCHED = {
    "KARROT_BIND": "127.0.0.1:5000",
    "KARROT_WATCH_BOOTSTRAP": "kafka-1:9092, kafka-2:9092",
    "KARROT_WATCH_CLUSTER": "prod",
}


def problems(settings: Settings) -> tuple[str, ...]:
    """What keeps a service with these settings from starting."""
    try:
        try_out(settings)
    except SettingsError as error:
        return tuple(error.problems)
    return ()


def refused(**more: str) -> str:
    with pytest.raises(SettingsError) as raised:
        load(WATCHED | more, available=("prometheus",))
    return str(raised.value)


def test_two_settings_enable_watch() -> None:
    settings, warnings, _ = load(WATCHED, available=("prometheus",))
    assert settings.watch_bootstrap == ("kafka-1:9092", "kafka-2:9092")
    assert (settings.watch_cluster, settings.watch_interval, warnings) == ("prod", 10, ())
    assert settings.watch_allowed_lag == 0
    assert problems(settings) == ()


def test_an_allowed_lag_is_a_number_of_messages() -> None:
    settings, _, _ = load(WATCHED | {"KARROT_WATCH_ALLOWED_LAG": "3"}, available=("prometheus",))
    assert settings.watch_allowed_lag == 3
    assert "must be a whole number from 0" in refused(KARROT_WATCH_ALLOWED_LAG="-1")


def test_one_of_the_two_settings_alone_is_refused() -> None:
    with pytest.raises(SettingsError, match="KARROT_WATCH_BOOTSTRAP needs KARROT_WATCH_CLUSTER"):
        load({"KARROT_WATCH_BOOTSTRAP": "kafka:9092"}, available=("prometheus",))
    with pytest.raises(SettingsError, match="KARROT_WATCH_CLUSTER needs KARROT_WATCH_BOOTSTRAP"):
        load({"KARROT_WATCH_CLUSTER": "prod"}, available=("prometheus",))


def test_groups_must_outlive_an_interval() -> None:
    assert "would expire between two polls" in refused(KARROT_WATCH_INTERVAL="200s")


def test_an_address_without_a_port_is_refused() -> None:
    assert "HOST:PORT, several separated by commas" in refused(KARROT_WATCH_BOOTSTRAP="kafka")


def test_missing_or_wrong_properties_are_reported_before_the_start(tmp_path: Path) -> None:
    assert "KARROT_WATCH_PROPERTIES names" in refused(KARROT_WATCH_PROPERTIES=str(tmp_path / "nowhere"))
    file = tmp_path / "client.properties"
    file.write_text("sasl.nosuch=hunter2")
    settings = load(WATCHED | {"KARROT_WATCH_PROPERTIES": str(file)}, available=("prometheus",)).settings
    assert problems(settings) == (f'KARROT_WATCH_BOOTSTRAP: {file}: No such configuration property: "sasl.nosuch"',)


def test_properties_can_be_given_inline_and_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    inline = {"KARROT_WATCH_PROPERTIES_INLINE": "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"}
    settings = load(WATCHED | inline, available=("prometheus",)).settings
    assert problems(settings) == ()
    assert effective(settings)["KARROT_WATCH_PROPERTIES_INLINE"] == "***"
    assert "SASL" not in repr(settings)


@pytest.fixture
def msk_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file of properties that asks for IAM, where AWS gives no credentials."""
    file = tmp_path / "msk.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / name))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_PROFILE", "late")
    return file


WHY = "AWS_MSK_IAM has no token: AWS credentials are missing or cannot be fetched: The config profile (late)"


def test_the_service_starts_without_aws_credentials_and_says_why_its_watch_fails(
    msk_without_credentials: Path, tmp_path: Path
) -> None:
    with Service(
        tmp_path / "data",
        watch_bootstrap="127.0.0.1:1",
        watch_cluster="prod",
        watch_interval="1s",
        watch_properties=str(msk_without_credentials),
    ) as service:
        wait_for(lambda: "failing" in str(service.get("/readyz").json))
        assert WHY in service.get("/").body.decode()
        assert WHY in service.said.read_text()
        wait_for(lambda: b'karrot_watch_failures_total{reason="credentials"}' in service.get("/metrics").body)
        assert service.post(warn_body("billing")).status == 202
        assert "Traceback" not in service.said.read_text()


def test_wrong_inline_properties_are_reported_without_their_values() -> None:
    wrong = {"KARROT_WATCH_PROPERTIES_INLINE": "sasl.nosuch=hunter2"}
    settings = load(WATCHED | wrong, available=("prometheus",)).settings
    [problem] = problems(settings)
    assert problem == 'KARROT_WATCH_BOOTSTRAP: the client properties: No such configuration property: "sasl.nosuch"'


def test_a_secret_that_is_no_list_of_properties_is_not_shown() -> None:
    settings = load(WATCHED | {"KARROT_WATCH_PROPERTIES_INLINE": "hunter2"}, available=("prometheus",)).settings
    [problem] = problems(settings)
    assert problem == 'KARROT_WATCH_BOOTSTRAP: the client properties: No such configuration property: "***"'


def test_properties_in_a_file_and_inline_contradict_each_other(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL")
    both = {"KARROT_WATCH_PROPERTIES": str(file), "KARROT_WATCH_PROPERTIES_INLINE": "security.protocol=SSL"}
    assert "are both set: set only one of them" in refused(**both)


def test_a_missing_client_library_is_reported_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    [problem] = problems(load(WATCHED, available=("prometheus",)).settings)
    assert problem == "KARROT_WATCH_BOOTSTRAP: watching Kafka needs confluent-kafka: pip install 'karrot-burrow[kafka]'"


def test_a_service_without_watch_needs_no_client_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert problems(load({}, available=("prometheus",)).settings) == ()
