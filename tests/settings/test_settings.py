"""Settings are read from defaults, a file, the environment and the command line, and checked together."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.settings import sources
from karrot.settings.loading import Loaded, SettingsError, load
from karrot.settings.options import OPTIONS, SECTIONS, Kafka, Settings, effective, needs_restart
from karrot.settings.types import Address, Secret

OFFER = ("prometheus", "stdout", "pager-duty")


LOCAL = {"KARROT_BIND": "127.0.0.1:5000"}
"""An address that no other machine reaches, so that no warning about missing passwords appears."""


def loaded(environ: Mapping[str, str], **more: object) -> Loaded:
    return load({**LOCAL, **environ}, available=OFFER, **more)  # type: ignore[arg-type]


def cloudwatch(environ: Mapping[str, str]) -> Loaded:
    return load({**LOCAL, **environ}, available=["cloudwatch", "prometheus"])


def problems(environ: Mapping[str, str], **more: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        loaded(environ, **more)
    return caught.value.problems


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "karrot.toml"
    file.touch(0o600)
    return file


DEFAULTS = Settings(data_dir=Path("karrot-data").absolute())


def test_the_defaults_apply_without_any_source_and_the_data_directory_is_absolute() -> None:
    assert load({}, available=OFFER).settings == DEFAULTS
    assert Settings().bind == Address("0.0.0.0", 5000)
    assert Settings().retention == 86400
    assert Settings().max_log_bytes == 1 << 30


_SET_TO_POST = "KARROT_BURROW_TOKEN (or KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD)"


@pytest.mark.parametrize(
    ("given", "allows", "way_out"),
    [
        pytest.param(
            {},
            "0.0.0.0:5000: anyone who reaches this port can post events and read the pages and the API",
            f"{_SET_TO_POST} and KARROT_API_TOKEN, or bind to 127.0.0.1:5000",
            id="every address of IPv4",
        ),
        pytest.param(
            {"KARROT_API_TOKEN": "a", "KARROT_BIND": "192.0.2.7:80"},
            "192.0.2.7:80: anyone who reaches this port can post events",
            f"{_SET_TO_POST}, or bind to 127.0.0.1:80",
            id="one address",
        ),
        pytest.param(
            {"KARROT_BURROW_TOKEN": "b", "KARROT_BIND": "[::]:5000"},
            "[::]:5000: anyone who reaches this port can read the pages and the API",
            "KARROT_API_TOKEN, or bind to 127.0.0.1:5000",
            id="every address of IPv6",
        ),
        pytest.param(
            {"KARROT_BURROW_TOKEN": "b", "KARROT_BIND": "localhost.example.org:5000"},
            "localhost.example.org:5000: anyone who reaches this port can read the pages and the API",
            "KARROT_API_TOKEN, or bind to 127.0.0.1:5000",
            id="a host name",
        ),
        pytest.param(
            {"KARROT_BURROW_TOKEN": "b", "KARROT_BIND": "[::ffff:192.0.2.7]:5000"},
            "[::ffff:192.0.2.7]:5000: anyone who reaches this port can read the pages and the API",
            "KARROT_API_TOKEN, or bind to 127.0.0.1:5000",
            id="an IPv4 address in IPv6",
        ),
    ],
)
def test_a_port_that_others_reach_without_a_password_gives_a_warning(
    given: Mapping[str, str], allows: str, way_out: str
) -> None:
    warning = f"KARROT_BIND is {allows} without a password; set {way_out}"
    assert load(given, available=OFFER).warnings == (warning,)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"KARROT_BIND": "localhost:5000"}, id="localhost"),
        pytest.param({"KARROT_BIND": "LOCALHOST:5000"}, id="localhost in upper case"),
        pytest.param({"KARROT_BIND": "localhost.:5000"}, id="localhost with a dot at the end"),
        pytest.param({"KARROT_BIND": "karrot.localhost:5000"}, id="a name below localhost"),
        pytest.param({"KARROT_BIND": "ip6-localhost:5000"}, id="ip6-localhost"),
        pytest.param({"KARROT_BIND": "127.0.0.9:5000"}, id="127.0.0.9"),
        pytest.param({"KARROT_BIND": "127.1:5000"}, id="127.1"),
        pytest.param({"KARROT_BIND": "[::ffff:127.0.0.1]:5000"}, id="127.0.0.1 in IPv6"),
        pytest.param({"KARROT_BIND": "[::1]:5000"}, id="the local address of IPv6"),
        pytest.param({"KARROT_API_TOKEN": "a", "KARROT_BURROW_TOKEN": "b"}, id="two tokens"),
        pytest.param(
            {"KARROT_API_TOKEN": "a", "KARROT_BURROW_USERNAME": "u", "KARROT_BURROW_PASSWORD": "p"},
            id="a token and a password",
        ),
    ],
)
def test_a_local_port_or_one_with_passwords_gives_no_warning(given: Mapping[str, str]) -> None:
    assert load(given, available=OFFER).warnings == ()


def test_every_option_is_described_and_its_default_matches_its_text() -> None:
    for option in OPTIONS:
        assert re.fullmatch(r"[A-Z].*\.", option.sentence), option.name
        value = option.of(Settings())
        assert not value if not option.default else value == option.kind.read(option.default)


def test_the_last_source_of_a_setting_wins(config: Path) -> None:
    config.write_text('log = "ERROR"\nworkers = 3\nbind = "127.0.0.1:1"\nthreads = 5\n')
    settings, warnings, sources = loaded(
        {"KARROT_WORKERS": "4", "KARROT_BIND": "127.0.0.1:2", "KARROT_THREADS": ""},
        config=config,
        overrides={"bind": "127.0.0.1:3"},
    )
    assert (settings.log, settings.workers, settings.bind.port, settings.threads) == ("ERROR", 4, 3, 5)
    assert warnings == ()
    assert sources == {
        "KARROT_LOG": f"log in {config}",
        "KARROT_WORKERS": "environment",
        "KARROT_BIND": "--bind",
        "KARROT_THREADS": f"threads in {config}",
    }


def test_the_source_of_a_value_from_a_file_or_from_the_first_karrot_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    environ = {"KARROT_API_TOKEN_FILE": str(tmp_path / "token"), "KARROT_COMPAT": "2019"}
    sources = load(environ).sources
    assert sources["KARROT_API_TOKEN"] == "KARROT_API_TOKEN_FILE in the environment"
    assert sources["KARROT_REPORTERS"] == sources["KARROT_CLOUDWATCH_DEFAULT_REGION"] == "KARROT_COMPAT=2019"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('logg = "DEBUG"', "logg in {file} is not a setting of Karrot; did you mean log?"),
        ('api_tokn_file = "/x"', "api_tokn_file in {file} is not a setting of Karrot; did you mean api_token?"),
        ("archive_size = 3", "archive_size in {file} is not a setting of Karrot; did you mean archive_dir?"),
        ('config = "other.toml"', "config in {file} is not a setting of Karrot"),
        ("xyzzy = 1", "xyzzy in {file} is not a setting of Karrot"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused_with_a_suggestion(config: Path, line: str, problem: str) -> None:
    config.write_text(f"{line}\n")
    (sentence,) = problems({}, config=config)
    assert sentence == problem.format(file=config)
    assert load({}, config=config, strict=False).settings == DEFAULTS


def test_a_setting_of_a_reporter_that_is_off_gives_a_warning_in_the_file_too(config: Path) -> None:
    config.write_text('stdout_format = "x"\n')
    assert loaded({}, config=config).warnings == (
        f"stdout_format in {config} belongs to the reporter stdout, which is not in KARROT_REPORTERS: it has no effect",
    )


def test_the_name_of_the_file_is_not_a_setting() -> None:
    assert loaded({"KARROT_CONFIG": "/etc/karrot.toml", "KARROT_URL": "http://karrot:5000"}).warnings == ()


def test_a_file_may_hold_a_table_and_toml_s_own_types(config: Path) -> None:
    config.write_text(
        '[karrot]\nreporters = ["prometheus", "stdout"]\n'
        "partition_metrics = true\nheader_timeout = 2.5\nretention = 60\n"
    )
    settings = loaded({}, config=config).settings
    assert settings.reporters == ("prometheus", "stdout")
    assert settings.partition_metrics is True
    assert (settings.header_timeout, settings.retention) == (2.5, 60)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("log =", "is not TOML: Invalid value (at end of document)"),
        ("\xff", "is not TOML: "),
        ("[karrot]\n[other]", "tables other than [karrot] are not read; write other_... = ..."),
        ("[textfile]\npath = 'x'", "tables other than [karrot] are not read; write textfile_path = ..."),
        ("[karrot.textfile]\npath = 'x'", "tables other than [karrot] are not read; write textfile_path = ..."),
        ("workers = 3\n[karrot]", "must hold either flat keys or one [karrot] table"),
        ("KARROT_WORKERS = 3", "names in a file are without KARROT_; write workers"),
        ("karrot = 1", "must hold either flat keys or one [karrot] table"),
        ("log = [1]", "must be a text, a number, true or false, or a list of texts"),
        ('reporters = ["a,b"]', "must be a text, a number, true or false, or a list of texts"),
        ("workers = 0", "workers in {file} is '0': it must be a whole number from 1 to 64"),
    ],
)
def test_an_invalid_file_is_refused_by_name(config: Path, content: str, problem: str) -> None:
    config.write_bytes(content.encode("latin-1"))
    (sentence,) = problems({}, config=config)
    assert problem.format(file=config) in sentence
    assert str(config) in sentence


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    sentence = f"the configuration file {missing} cannot be read: No such file or directory"
    assert problems({}, config=missing) == (sentence,)


def test_all_wrong_values_are_named_at_once_with_the_allowed_values() -> None:
    assert problems(
        {
            "KARROT_WORKERS": "many",
            "KARROT_LOG": "LOUD",
            "KARROT_MAX_BODY": "33MiB",
            "KARROT_EXCLUDE_CONSUMERS": "(",
            "KARROT_EVENT_LOG": "postgresql://u:p@h/d",
        },
        overrides={"bind": "nowhere"},
    ) == (
        "--bind is 'nowhere': it must be HOST:PORT, [IPV6]:PORT or :PORT",
        (
            "KARROT_EVENT_LOG is 'postgresql://***@h/d': it must be sqlite, memory, or postgresql://USER@HOST/DATABASE "
            "without a password (see KARROT_EVENT_LOG_PASSWORD_FILE)"
        ),
        "KARROT_EXCLUDE_CONSUMERS is '(': it must be a regular expression",
        "KARROT_LOG is 'LOUD': it must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL",
        "KARROT_MAX_BODY is '33MiB': it must be bytes, or a number with KiB, MiB, GiB or TiB, from 1KiB to 32MiB",
        "KARROT_WORKERS is 'many': it must be a whole number from 1 to 64",
    )


@pytest.mark.parametrize("text", ["prometheus,stdout", " prometheus , stdout, ", "prometheus,stdout,prometheus,"])
def test_spaces_and_a_trailing_comma_between_reporters_are_accepted(text: str) -> None:
    assert loaded({"KARROT_REPORTERS": text}).settings.reporters == ("prometheus", "stdout")


def test_an_unknown_reporter_is_refused_with_the_available_ones() -> None:
    assert problems({"KARROT_REPORTERS": "prometheus,promethius"}) == (
        (
            "KARROT_REPORTERS names promethius, which no installed package provides; "
            "available reporters: pager-duty, prometheus, stdout"
        ),
    )


def test_the_installed_reporters_are_available_by_default() -> None:
    assert load({"KARROT_REPORTERS": "stdout"}).settings.reporters == ("stdout",)


def test_the_first_karrot_s_defaults_are_turned_on_together() -> None:
    settings = cloudwatch({"KARROT_COMPAT": "2019"}).settings
    assert settings.reporters == ("prometheus", "cloudwatch")
    assert settings.cloudwatch.namespace == "GumGum/Kafka/Burrow/ConsumerLag"
    assert settings.cloudwatch.layouts == ("legacy",)
    assert settings.cloudwatch.max_groups == 1_000_000


def test_a_given_setting_wins_over_the_first_karrot_s_defaults() -> None:
    given = {"KARROT_COMPAT": "2019", "KARROT_CLOUDWATCH_NAMESPACE": "Mine", "KARROT_CLOUDWATCH_LAYOUT": "dimensions"}
    settings = cloudwatch(given).settings
    assert (settings.cloudwatch.namespace, settings.cloudwatch.layouts) == ("Mine", ("dimensions",))


def test_the_first_karrot_s_defaults_without_its_cloudwatch_reporter_stop_the_start() -> None:
    assert problems({"KARROT_COMPAT": "2019", "KARROT_REPORTERS": "prometheus"}) == (
        (
            "KARROT_COMPAT=2019: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; "
            "add cloudwatch to KARROT_REPORTERS, or remove this setting"
        ),
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("KARROT_IAM_ROLE", "arn:aws:iam::123456789012:role/karrot"), ("KARROT_CLOUDWATCH_NAMESPACE", "Mine")],
)
def test_settings_of_cloudwatch_while_it_is_off_stop_the_start_and_name_both_fixes(name: str, text: str) -> None:
    assert problems({name: text}) == (
        (
            f"{name}: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; add "
            "cloudwatch to KARROT_REPORTERS, or remove this setting"
        ),
    )
    assert loaded({name: ""}).warnings == ()


def test_a_misspelt_setting_of_cloudwatch_stops_the_start_too() -> None:
    problem, spelling = problems({"KARROT_CLOUDWATCH_NAMESPCE": "Mine"})
    assert problem.startswith("KARROT_CLOUDWATCH_NAMESPCE: set, but the cloudwatch reporter is off")
    assert spelling.endswith("did you mean KARROT_CLOUDWATCH_NAMESPACE?")


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("NAMESPACE", "AWS/ECS", "1 to 255 letters, digits or . - _ / # : and must not begin with a colon or AWS/"),
        ("NAMESPACE", ":mine", "1 to 255 letters, digits or . - _ / # : and must not begin with a colon or AWS/"),
        (
            "METRICS",
            "Lag,Lagg",
            "one or more of Lag, ScalableLag, MaxLag, LagSeconds, ScalableLagSeconds, Status, separated by commas",
        ),
        ("LAYOUT", "old", "one or more of dimensions, legacy, separated by commas"),
        ("INTERVAL", "0", "seconds, or a number with s, m, h or d, from 1s to 1h"),
        ("MIN_COMPLETE", "1.5", "a number from 0 to 1"),
        ("RESOLUTION", "10", "one of 1, 60"),
        ("MAX_GROUPS", "0", "a whole number from 1 to 1000000"),
    ],
)
def test_a_wrong_value_for_cloudwatch_is_refused_with_the_allowed_values(name: str, text: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as refused:
        cloudwatch({"KARROT_REPORTERS": "cloudwatch", f"KARROT_CLOUDWATCH_{name}": text})
    assert refused.value.problems == (f"KARROT_CLOUDWATCH_{name} is {text!r}: it must be {allowed}",)


def test_a_role_must_be_an_arn() -> None:
    with pytest.raises(SettingsError, match="KARROT_IAM_ROLE is 'karrot': it must be the ARN of a role"):
        cloudwatch({"KARROT_REPORTERS": "cloudwatch", "KARROT_IAM_ROLE": "karrot"})


def test_values_that_would_be_too_old_at_their_flush_give_a_warning() -> None:
    given = {"KARROT_REPORTERS": "cloudwatch", "KARROT_CLOUDWATCH_TTL": "59", "KARROT_CLOUDWATCH_INTERVAL": "30"}
    (warning,) = cloudwatch(given).warnings
    assert warning.startswith("KARROT_CLOUDWATCH_TTL is 59s, less than two intervals")


def test_an_interval_that_leaves_alarms_without_data_and_an_unknown_name_give_warnings() -> None:
    given = {
        "KARROT_REPORTERS": "cloudwatch",
        "KARROT_CLOUDWATCH_INTERVAL": "120",
        "KARROT_CLOUDWATCH_RESOLUTION": "1",
        "KARROT_CLOUDWATCH_METRIC": "x",
    }
    assert cloudwatch(given).warnings == (
        (
            "KARROT_CLOUDWATCH_METRIC is not a setting of Karrot: it has no effect; "
            "did you mean KARROT_CLOUDWATCH_METRICS?"
        ),
        (
            "KARROT_CLOUDWATCH_TTL is 180s, less than two intervals: values would be too old before they are sent, "
            "so Karrot uses 240s"
        ),
        (
            "KARROT_CLOUDWATCH_INTERVAL is 120s: alarms with a period of one minute will see minutes without data; "
            "set at most 60s"
        ),
        (
            "KARROT_CLOUDWATCH_INTERVAL is 120s with KARROT_CLOUDWATCH_RESOLUTION=1: an alarm with a period of 10s "
            "needs a value every 10s"
        ),
    )


def test_the_kafka_reporter_needs_brokers_and_its_settings_need_it() -> None:
    with pytest.raises(SettingsError) as raised:
        load({"KARROT_REPORTERS": "kafka"}, available=["kafka"])
    assert raised.value.problems == (
        "KARROT_REPORTERS has kafka, which needs KARROT_KAFKA_BOOTSTRAP: set it to the brokers, HOST:PORT",
    )
    (warning,) = loaded({"KARROT_KAFKA_TOPIC": "x"}).warnings
    assert warning == "KARROT_KAFKA_TOPIC: set, but kafka is not in KARROT_REPORTERS, so no event is sent to Kafka"
    given = {"KARROT_REPORTERS": "kafka", "KARROT_KAFKA_BOOTSTRAP": "a:1, b:2"}
    assert load(given, available=["kafka"]).settings.kafka == Kafka(("a:1", "b:2"), "karrot.events", None)


def test_an_archive_that_would_keep_no_segment_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    given = {
        "KARROT_REPORTERS": "prometheus,archive",
        "KARROT_RETENTION": "90",
        "KARROT_ARCHIVE_MAX_BYTES": "1MiB",
        "KARROT_ARCHIVE_DIR": str(file),
    }
    with pytest.raises(SettingsError) as caught:
        load(given, available=["archive", "prometheus"])
    assert caught.value.problems == (
        (
            "KARROT_RETENTION is 90s, less than twice KARROT_ARCHIVE_SEGMENT_SECONDS (60s): "
            "events would be deleted before they are archived"
        ),
        (
            "KARROT_ARCHIVE_MAX_BYTES is 1048576, less than twice KARROT_ARCHIVE_SEGMENT_BYTES (8388608): "
            "a segment would be deleted as soon as it is written"
        ),
        f"KARROT_ARCHIVE_DIR names {str(file)!r}, which is a file: it must be a folder",
    )


def test_settings_of_an_archive_that_is_off_give_a_warning() -> None:
    assert loaded({"KARROT_ARCHIVE_DIR": "s3://lag/karrot/", "KARROT_ARCHIVE_RETENTION": "90d"}).warnings == (
        (
            "KARROT_ARCHIVE_DIR, KARROT_ARCHIVE_RETENTION: set, but archive is not in KARROT_REPORTERS, "
            "so no event is archived"
        ),
    )


def test_a_resync_interval_that_is_too_long_for_the_stale_time_is_refused() -> None:
    given = {"KARROT_BURROW_URL": "http://burrow:8000", "KARROT_RESYNC_INTERVAL": "200", "KARROT_STALE_AFTER": "300"}
    assert problems(given) == (
        (
            "KARROT_STALE_AFTER is 300s, less than twice KARROT_RESYNC_INTERVAL (200s): "
            "a group that only the REST API reports would expire between two resyncs"
        ),
    )


def test_an_unknown_name_gives_a_warning_without_its_value_and_with_a_suggestion() -> None:
    warnings = loaded(
        {"KARROT_API_TOKN": "hunter2", "KARROT_XYZZY": "hunter2", "KARROT_STDOUT_FORMAT": "hunter2"}
    ).warnings
    assert warnings == (
        "KARROT_API_TOKN is not a setting of Karrot: it has no effect; did you mean KARROT_API_TOKEN?",
        "KARROT_STDOUT_FORMAT belongs to the reporter stdout, which is not in KARROT_REPORTERS: it has no effect",
        "KARROT_XYZZY is not a setting of Karrot: it has no effect",
    )


def test_each_field_of_the_settings_of_a_built_in_reporter_is_a_setting() -> None:
    declared = {(each.section, each.field) for each in OPTIONS}
    assert declared >= {(name, each.name) for name, section in SECTIONS.items() for each in fields(section)}


@pytest.mark.parametrize("name", ["KARROT_CLOUDWATCH_SPEED", "KARROT_ARCHIVE_SPEED", "KARROT_SPEED"])
def test_an_unknown_name_is_no_setting_even_with_the_prefix_of_a_built_in_reporter_that_is_on(name: str) -> None:
    found = load({**LOCAL, name: "1", "KARROT_REPORTERS": "cloudwatch,archive"})
    assert name not in effective(found.settings)
    assert [each.partition(":")[0] for each in found.warnings] == [f"{name} is not a setting of Karrot"]


def test_an_unknown_name_is_reported_with_errors_because_it_may_be_the_cause() -> None:
    assert problems({"KARROT_METRICS_AUTH": "true", "KARROT_API_TOKN": "hunter2"}) == (
        "KARROT_METRICS_AUTH needs KARROT_API_TOKEN: set both, or remove KARROT_METRICS_AUTH",
        "KARROT_API_TOKN is not a setting of Karrot: it has no effect; did you mean KARROT_API_TOKEN?",
    )


def test_names_that_kubernetes_injects_are_ignored() -> None:
    injected = {
        "KARROT_PORT": "tcp://10.0.0.1:5000",
        "KARROT_PORT_5000_TCP_ADDR": "10.0.0.1",
        "KARROT_SERVICE_HOST": "10.0.0.1",
        "KARROT_SERVICE_PORT_HTTP": "5000",
        "KARROT_BURROW_PORT": "tcp://10.0.0.2:8000",
        "KARROT_BURROW_PORT_8000_TCP": "tcp://10.0.0.2:8000",
        "KARROT_BURROW_SERVICE_HOST": "10.0.0.2",
    }
    assert loaded(injected) == loaded({})


def test_a_reporter_of_another_package_reads_its_own_settings_and_its_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    settings, warnings, _ = loaded(
        {
            "KARROT_REPORTERS": "pager-duty",
            "KARROT_PAGER_DUTY_URL": "http://x",
            "KARROT_PAGER_DUTY_KEY_FILE": str(tmp_path / "key"),
        }
    )
    assert settings.reporter_settings("pager-duty") == {"url": "http://x", "key": "hunter2"}
    assert settings.reporter_settings("prometheus") == {}
    assert warnings == ()
    assert effective(settings)["KARROT_PAGER_DUTY_KEY"] == "***"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_a_secret_is_read_from_a_file_without_its_last_newline(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_bytes(content.encode())
    settings = loaded({"KARROT_API_TOKEN_FILE": str(tmp_path / "token")}).settings
    assert settings.api_token == Secret("hunter2")


def test_an_unusable_secret_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    for name, why in [
        ("none", f"names {str(tmp_path / 'none')!r}, which cannot be read: No such file or directory"),
        ("empty", f"names {str(tmp_path / 'empty')!r}, which is empty"),
        ("binary", f"names {str(tmp_path / 'binary')!r}, which cannot be read: it is not UTF-8 text"),
        ("large", f"names {str(tmp_path / 'large')!r}, which is larger than 65536 bytes"),
    ]:
        assert problems({"KARROT_API_TOKEN_FILE": str(tmp_path / name)}) == (f"KARROT_API_TOKEN_FILE {why}",)


def test_a_secret_file_in_the_environment_wins_over_a_secret_in_the_configuration(config: Path, tmp_path: Path) -> None:
    config.write_text('api_token = "old"\n')
    (tmp_path / "token").write_text("new")
    environ = {"KARROT_API_TOKEN_FILE": str(tmp_path / "token")}
    assert loaded(environ, config=config).settings.api_token == Secret("new")


def test_a_secret_given_twice_in_one_place_is_refused() -> None:
    environ = {"KARROT_API_TOKEN": "a", "KARROT_API_TOKEN_FILE": "b"}
    assert problems(environ) == ("KARROT_API_TOKEN and KARROT_API_TOKEN_FILE are both set: keep one",)


def test_an_empty_secret_is_refused() -> None:
    assert problems({"KARROT_API_TOKEN": ""}) == ("KARROT_API_TOKEN is set but empty: give it a value or remove it",)


def test_only_a_secret_may_come_from_a_file() -> None:
    assert loaded({"KARROT_LOG_FILE": "/dev/null"}).warnings == (
        "KARROT_LOG_FILE is not a setting of Karrot: it has no effect; did you mean KARROT_LOG?",
    )


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        pytest.param(
            {"KARROT_EVENT_LOG": "memory"},
            (
                "KARROT_WORKERS is 2: it must be 1 with KARROT_EVENT_LOG=memory, as workers cannot share an event "
                "log in memory"
            ),
            id="two workers with an event log in memory",
        ),
        ({"KARROT_BURROW_USERNAME": "u"}, "KARROT_BURROW_USERNAME needs KARROT_BURROW_PASSWORD"),
        ({"KARROT_BURROW_PASSWORD": "p"}, "KARROT_BURROW_PASSWORD needs KARROT_BURROW_USERNAME"),
        ({"KARROT_BURROW_PASSWORD_PREVIOUS": "p"}, "KARROT_BURROW_PASSWORD_PREVIOUS needs KARROT_BURROW_PASSWORD"),
        ({"KARROT_BURROW_TOKEN_PREVIOUS": "p"}, "KARROT_BURROW_TOKEN_PREVIOUS needs KARROT_BURROW_TOKEN"),
        ({"KARROT_TLS_CERT": __file__}, "KARROT_TLS_CERT needs KARROT_TLS_KEY"),
        ({"KARROT_TLS_KEY": __file__}, "KARROT_TLS_KEY needs KARROT_TLS_CERT"),
        ({"KARROT_API_TOKEN_PREVIOUS": "p"}, "KARROT_API_TOKEN_PREVIOUS needs KARROT_API_TOKEN"),
        ({"KARROT_METRICS_AUTH": "true"}, "KARROT_METRICS_AUTH needs KARROT_API_TOKEN"),
        (
            {"KARROT_TLS_CERT": "/none", "KARROT_TLS_KEY": __file__},
            "KARROT_TLS_CERT names '/none', which cannot be read",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(environ: dict[str, str], problem: str) -> None:
    (sentence,) = problems(environ)
    assert sentence.partition(": set both, or remove ")[0] == problem


def test_clusters_that_burrow_cannot_name_give_a_warning() -> None:
    assert loaded({"KARROT_EXPECTED_CLUSTERS": "prod,Test"}).warnings == (
        "KARROT_EXPECTED_CLUSTERS has Test: Burrow writes cluster names in lower case, so write test",
    )


def test_a_readable_configuration_with_a_secret_gives_a_warning_with_its_mode(config: Path) -> None:
    config.write_text('api_token = "hunter2"\n')
    assert loaded({}, config=config).warnings == ()
    config.chmod(0o644)
    (warning,) = loaded({}, config=config).warnings
    assert warning.startswith(f"{config} holds a secret and has mode 0644")
    assert "hunter2" not in warning
    config.write_text('log = "INFO"\n')
    assert loaded({}, config=config).warnings == ()


def test_a_secret_is_never_shown() -> None:
    environ = {"KARROT_BURROW_USERNAME": "u", "KARROT_BURROW_PASSWORD": "hunter2", "KARROT_API_TOKEN": "hunter2"}
    settings = loaded(environ).settings
    assert "hunter2" not in f"{settings} {effective(settings)}"
    assert effective(settings)["KARROT_API_TOKEN"] == "***"
    assert not any("hunter2" in problem for problem in problems({**environ, "KARROT_LOG": "x"}))


def test_the_effective_settings_have_every_name_and_can_be_read_back() -> None:
    changed = {"KARROT_RETENTION": "90m", "KARROT_EXCLUDE_CONSUMERS": "^test-", "KARROT_BIND": "[::]:1"}
    shown = effective(loaded(changed).settings)
    assert list(shown) == [option.name for option in OPTIONS]
    assert shown["KARROT_RETENTION"] == "5400s"
    read_back = loaded({name: text for name, text in shown.items() if text})
    assert (read_back.settings, read_back.warnings) == (loaded(changed).settings, loaded(changed).warnings)


@given(st.dictionaries(st.sampled_from([option.name for option in OPTIONS]), st.text(max_size=12), max_size=4))
def test_any_texts_give_settings_or_one_settings_error(environ: dict[str, str]) -> None:
    try:
        settings = loaded(environ).settings
    except SettingsError:
        return
    assert effective(settings).keys() >= environ.keys()


def test_settings_that_a_reload_cannot_change_are_named() -> None:
    old = Settings()
    new = loaded({"KARROT_BIND": ":1", "KARROT_DATA_DIR": "/x", "KARROT_LOG": "DEBUG"}).settings
    assert [each.name for each in needs_restart(old, new)] == ["KARROT_BIND", "KARROT_DATA_DIR"]
    assert needs_restart(old, old) == ()


def test_variables_of_other_programs_are_ignored() -> None:
    assert sources.from_environment({"PATH": "x", "MY_KARROT_LOG": "x"}) == {}
