"""Loads the settings from all sources, at the start and at a reload, and finds contradictions between them."""

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from karrot.settings import sources, types
from karrot.settings.options import OPTIONS, SECTIONS, CloudWatch, Settings, reporter_prefix
from karrot.settings.sources import PREFIX, File, Given, SourceError
from karrot.settings.types import Bucket

_BY_NAME = {each.name: each for each in OPTIONS}
_SECRETS = frozenset(each.name for each in OPTIONS if each.is_secret)
_COMPAT, _FIRST_KARROT = "KARROT_COMPAT", "2019"
_FIRST_KARROTS_DEFAULTS = {
    "KARROT_REPORTERS": "prometheus,cloudwatch",
    "KARROT_CLOUDWATCH_NAMESPACE": "GumGum/Kafka/Burrow/ConsumerLag",
    "KARROT_CLOUDWATCH_LAYOUT": "legacy",
    "KARROT_CLOUDWATCH_DEFAULT_REGION": "us-east-1",
    # The first Karrot had no limit. With a limit, some groups would lose the metric by which their service scales.
    "KARROT_CLOUDWATCH_MAX_GROUPS": "1000000",
}
"""The defaults with ``KARROT_COMPAT=2019``, so that no site loses its scaling metric."""

_NEEDS = (
    ("KARROT_BURROW_USERNAME", "KARROT_BURROW_PASSWORD"),
    ("KARROT_BURROW_PASSWORD", "KARROT_BURROW_USERNAME"),
    ("KARROT_BURROW_PASSWORD_PREVIOUS", "KARROT_BURROW_PASSWORD"),
    ("KARROT_BURROW_TOKEN_PREVIOUS", "KARROT_BURROW_TOKEN"),
    ("KARROT_TLS_CERT", "KARROT_TLS_KEY"),
    ("KARROT_TLS_KEY", "KARROT_TLS_CERT"),
    ("KARROT_API_TOKEN_PREVIOUS", "KARROT_API_TOKEN"),
    ("KARROT_METRICS_AUTH", "KARROT_API_TOKEN"),
    ("KARROT_WATCH_BOOTSTRAP", "KARROT_WATCH_CLUSTER"),
    ("KARROT_WATCH_CLUSTER", "KARROT_WATCH_BOOTSTRAP"),
)
"""Pairs of settings. The first setting has no effect without the second setting."""

_FILES = (
    *("KARROT_TLS_CERT", "KARROT_TLS_KEY", "KARROT_WATCH_PROPERTIES"),
    *("KARROT_KAFKA_PROPERTIES", "KARROT_NOTIFY_CONFIG", "KARROT_EVENT_LOG_PASSWORD_FILE"),
)
_PASSWORD_SOURCES = tuple(f"KARROT_EVENT_LOG_{each}" for each in ("PASSWORD_FILE", "PASSWORD_COMMAND", "RDS_IAM"))
_CLOUDWATCH = ("KARROT_CLOUDWATCH_", "KARROT_IAM_ROLE")
_LOOPBACK = re.compile(r"(.+\.)?localhost\.?|ip6-(localhost|loopback)|(::ffff:)?127(\.[0-9]+){1,3}|::1")
"""The names and addresses that only this machine can reach. No name is looked up in DNS."""

_MINUTE_S = 60
_HIGH_RESOLUTION_S = 10


class SettingsError(Exception):
    """The settings are wrong, so Karrot cannot start. The text has one line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Loaded(NamedTuple):
    """Valid settings, warnings about them, and the source of each value that is not the default."""

    settings: Settings
    warnings: tuple[str, ...]
    sources: Mapping[str, str] = MappingProxyType({})


def load(
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    overrides: Mapping[str, str] = MappingProxyType({}),
    available: Collection[str] | None = None,
    strict: bool = True,
) -> Loaded:
    """Load settings from defaults, file, environment and ``overrides``. A later source replaces earlier values.

    The keys of ``overrides`` are attribute names. ``available`` lists the reporters that can be turned on. By default,
    these are the installed reporters. An unknown name in the environment gives a warning, because other programs can
    set it. An unknown name in the file is an error, except if ``strict`` is false. Raises `SettingsError`, which names
    every wrong value.
    """
    available = installed_reporters() if available is None else available
    try:
        file = sources.from_file(config) if config else File({}, None)
        layers = [file.given, sources.from_environment(environ), sources.from_command_line(overrides)]
        given = sources.merged(layers, plain=_BY_NAME.keys() - _SECRETS, secret=_SECRETS)
    except SourceError as error:
        raise SettingsError([str(error)]) from error
    if _COMPAT in given and given[_COMPAT].text.strip() == _FIRST_KARROT:
        compat = Given(f"{_COMPAT}={_FIRST_KARROT}", "")
        given = {name: compat._replace(text=text) for name, text in _FIRST_KARROTS_DEFAULTS.items()} | given
    settings, problems = _parsed(given)
    extras, unknown, ignored = _others(given, settings.reporters, available, file if strict else File({}, None))
    problems += [*unknown, *_about_reporters(given, settings, available)]
    ignored += _settings_of_reporters_off(given, settings)
    if problems or (problems := list(_contradictions(settings))):
        raise SettingsError([*problems, *ignored])  # a misspelt name is often the reason of a missing value
    files = {_BY_NAME[name].field: given[name] for name in _SECRETS & given.keys() if given[name].file}
    origins = {name: each.source(name) for name, each in given.items()}
    directory = settings.data_dir.absolute()  # so that the log and errors say where the data is
    complete = replace(settings, data_dir=directory, extras=extras, secret_files=files)
    return Loaded(complete, (*ignored, *_doubts(settings, file, config)), origins)


def read_secrets_again(settings: Settings) -> Settings:
    """Replace the secrets by the present contents of their files. Raises `SourceError` if a file cannot be used."""
    secrets: dict[str, Any] = {}
    for attribute, given in settings.secret_files.items():
        secrets[attribute] = types.secret.read(sources.secret_text(given))
    return replace(settings, **secrets)


def checked(settings: Settings) -> Settings:
    """Return the settings. Raises `SettingsError` if two settings contradict each other."""
    if problems := list(_contradictions(settings)):
        raise SettingsError(problems)
    return settings


def installed_reporters() -> tuple[str, ...]:
    """The names of the reporters of all installed packages, including Karrot."""
    return tuple(sorted({point.name for point in entry_points(group="karrot.reporters")}))


def _parsed(given: Mapping[str, Given]) -> tuple[Settings, list[str]]:
    """Parse the values. A wrong value gives the default and an error sentence."""
    problems: list[str] = []
    parsed: dict[str, dict[str, Any]] = {section: {} for section in ("", *SECTIONS)}
    for name in given.keys() & _BY_NAME.keys():
        option, value = _BY_NAME[name], given[name]
        try:
            text = sources.secret_text(value) if option.is_secret else value.text.strip()
            parsed[option.section][option.field] = types.checked(option.kind, value.label, text)
        except ValueError as error:
            problems.append(str(error))
    of_reporters: dict[str, Any] = {name: section(**parsed[name]) for name, section in SECTIONS.items()}
    return Settings(**parsed[""], **of_reporters), sorted(problems)


def _others(
    given: Mapping[str, Given], on: Collection[str], available: Collection[str], file: File
) -> tuple[dict[str, str], list[str], list[str]]:
    """Sort the undeclared names: values for reporters that are on, error sentences, and warnings about no effect.

    A name in ``file`` that belongs to no reporter is an error. No sentence shows a value, which may be secret.
    """
    extras, problems, ignored = dict[str, str](), list[str](), list[str]()
    written = {each.label for each in file.given.values()}
    prefixes = {reporter_prefix(reporter): reporter for reporter in (*on, *available)}
    described = {prefix for prefix in prefixes if any(name.startswith(prefix) for name in _BY_NAME)}
    for name in sorted(given.keys() - _BY_NAME.keys()):
        label = given[name].label
        owner = next((prefixes[each] for each in prefixes if name.startswith(each) and each not in described), None)
        if owner in on:
            try:
                extras[name] = sources.secret_text(given[name])
            except SourceError as error:
                problems.append(str(error))
        elif owner:
            reason = f"belongs to the reporter {owner}, which is not in KARROT_REPORTERS: it has no effect"
            ignored.append(f"{label} {reason}")
        elif label in written:
            problems.append(f"{label} is not a setting of Karrot{_suggestion(name, in_file=True)}")
        else:
            ignored.append(f"{label} is not a setting of Karrot: it has no effect{_suggestion(name)}")
    return extras, problems, ignored


def _about_reporters(given: Mapping[str, Given], settings: Settings, available: Collection[str]) -> Iterator[str]:
    if missing := [name for name in settings.reporters if name not in available]:
        yield (
            f"KARROT_REPORTERS names {', '.join(missing)}, which no installed package provides; "
            f"available reporters: {', '.join(sorted(available))}"
        )
    # A service may scale by the metrics of the cloudwatch reporter, so it is an error if the reporter is off.
    asked = sorted({given[name].label for name in given if name.startswith(_CLOUDWATCH)})
    if asked and "cloudwatch" not in settings.reporters:
        yield (
            f"{', '.join(asked)}: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; "
            f"add cloudwatch to KARROT_REPORTERS, or remove {'this setting' if len(asked) == 1 else 'these settings'}"
        )


def _settings_of_reporters_off(given: Mapping[str, Given], settings: Settings) -> Iterator[str]:
    for reporter, loss in (("archive", "archived"), ("kafka", "sent to Kafka")):
        asked = sorted(given[each.name].label for each in OPTIONS if each.section == reporter and each.name in given)
        if asked and reporter not in settings.reporters:
            yield f"{', '.join(asked)}: set, but {reporter} is not in KARROT_REPORTERS, so no event is {loss}"


def _contradictions(settings: Settings) -> Iterator[str]:
    values = {each.name: each.of(settings) for each in OPTIONS}
    if settings.event_log == "memory" and settings.workers > 1:
        yield (
            f"KARROT_WORKERS is {settings.workers}: it must be 1 with KARROT_EVENT_LOG=memory, as workers cannot share "
            "an event log in memory"
        )
    yield from _contradictions_about_passwords(settings, [name for name in _PASSWORD_SOURCES if values[name]])
    for name, partner in _NEEDS:
        if values[name] and not values[partner]:
            yield f"{name} needs {partner}: set both, or remove {name}"
    for is_on, more, less, why in _at_least_twice(settings):
        if is_on and values[more] < 2 * values[less]:
            unit = "" if more.endswith("BYTES") else "s"
            yield f"{more} is {values[more]}{unit}, less than twice {less} ({values[less]}{unit}): {why}"
    if settings.watch_bootstrap and settings.watch_properties and settings.watch_properties_inline:
        yield "KARROT_WATCH_PROPERTIES and KARROT_WATCH_PROPERTIES_INLINE are both set: set only one of them"
    yield from _contradictions_about_reporters(settings)
    for name in _FILES:
        if values[name] and not os.access(values[name], os.R_OK):
            yield f"{name} names {str(values[name])!r}, which cannot be read"


def _at_least_twice(settings: Settings) -> Iterator[tuple[object, str, str, str]]:
    """Yield (condition, setting, second setting, reason). The setting must be at least twice the second setting."""
    why = "a group that only the REST API reports would expire between two resyncs"
    yield settings.burrow_url, "KARROT_STALE_AFTER", "KARROT_RESYNC_INTERVAL", why
    why = "groups would expire between two polls"
    yield settings.watch_bootstrap, "KARROT_STALE_AFTER", "KARROT_WATCH_INTERVAL", why
    is_archived = "archive" in settings.reporters
    why = "events would be deleted before they are archived"
    yield is_archived, "KARROT_RETENTION", "KARROT_ARCHIVE_SEGMENT_SECONDS", why
    why = "a segment would be deleted as soon as it is written"
    yield is_archived, "KARROT_ARCHIVE_MAX_BYTES", "KARROT_ARCHIVE_SEGMENT_BYTES", why


def _contradictions_about_passwords(settings: Settings, sources: Sequence[str]) -> Iterator[str]:
    if sources and not settings.is_on_postgresql:
        yield f"{sources[0]} needs KARROT_EVENT_LOG=postgresql://...: set both, or remove it"
    if len(sources) > 1:
        yield f"{' and '.join(sources)} are set: set only one of them"


def _contradictions_about_reporters(settings: Settings) -> Iterator[str]:
    place = settings.archive.place
    if "archive" in settings.reporters and settings.is_on_postgresql and not isinstance(place, Bucket):
        yield (
            "KARROT_REPORTERS has archive, and several replicas can share KARROT_EVENT_LOG: set KARROT_ARCHIVE_DIR to "
            "s3://bucket/prefix, because the next leader may be on another machine"
        )
    if "archive" in settings.reporters and isinstance(place, Path) and place.is_file():
        yield f"KARROT_ARCHIVE_DIR names {str(place)!r}, which is a file: it must be a folder"
    if "kafka" in settings.reporters and not settings.kafka.bootstrap:
        yield "KARROT_REPORTERS has kafka, which needs KARROT_KAFKA_BOOTSTRAP: set it to the brokers, HOST:PORT"
    if "notify" in settings.reporters and not settings.notify_config:
        yield "KARROT_REPORTERS has notify, which needs KARROT_NOTIFY_CONFIG: set it to a TOML file with channels"


def _suggestion(name: str, *, in_file: bool = False) -> str:
    close = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.8)
    written = [each.removeprefix(PREFIX).lower() if in_file else each for each in close]
    return f"; did you mean {written[0]}?" if written else ""


def _doubts(settings: Settings, file: File, config: Path | None) -> Iterator[str]:
    if file.open_mode and _SECRETS & file.given.keys():
        yield (
            f"{config} holds a secret and has mode {file.open_mode}: all users of this machine can read it; "
            f"chmod 600 {config}"
        )
    if upper := [name for name in settings.expected_clusters if name != name.lower()]:
        yield (
            f"KARROT_EXPECTED_CLUSTERS has {', '.join(upper)}: Burrow writes cluster names in lower case, so write "
            f"{', '.join(map(str.lower, upper))}"
        )
    if not _LOOPBACK.fullmatch(settings.bind.host.lower()):
        yield from _open_to_all(settings)
    if "cloudwatch" in settings.reporters:
        yield from _doubts_about_cloudwatch(settings.cloudwatch)


def _open_to_all(settings: Settings) -> Iterator[str]:
    """Make one warning for both posting and reading, because most containers start without any password."""
    allowed, missing = [], []
    if settings.burrow_password is None and settings.burrow_token is None:
        allowed.append("post events")
        missing.append("KARROT_BURROW_TOKEN (or KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD)")
    if settings.api_token is None:
        allowed.append("read the pages and the API")
        missing.append("KARROT_API_TOKEN")
    if missing:
        yield (
            f"KARROT_BIND is {settings.bind}: anyone who reaches this port can {' and '.join(allowed)} without a "
            f"password; set {' and '.join(missing)}, or bind to 127.0.0.1:{settings.bind.port}"
        )


def _doubts_about_cloudwatch(chosen: CloudWatch) -> Iterator[str]:
    if chosen.ttl < chosen.ttl_s:
        yield (
            f"KARROT_CLOUDWATCH_TTL is {chosen.ttl}s, less than two intervals: values would be too old "
            f"before they are sent, so Karrot uses {chosen.ttl_s}s"
        )
    if chosen.interval_s > _MINUTE_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {chosen.interval_s}s: alarms with a period of one minute will "
            f"see minutes without data; set at most {_MINUTE_S}s"
        )
    if chosen.resolution == 1 and chosen.interval_s > _HIGH_RESOLUTION_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {chosen.interval_s}s with KARROT_CLOUDWATCH_RESOLUTION=1: an "
            f"alarm with a period of {_HIGH_RESOLUTION_S}s needs a value every {_HIGH_RESOLUTION_S}s"
        )
