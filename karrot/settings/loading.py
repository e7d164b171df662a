"""Loads the settings from all sources, at the start and at a reload, and finds contradictions between them."""

import difflib
import ipaddress
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from karrot.settings import compat, sources, types
from karrot.settings.options import ARCHIVE, CLOUDWATCH, KAFKA, OPTIONS, Settings, reporter_prefix
from karrot.settings.sources import PREFIX, File, Given, SourceError
from karrot.settings.storage_place import Bucket

_BY_NAME = {each.name: each for each in OPTIONS}
_SECRETS = frozenset(each.name for each in OPTIONS if each.is_secret)
_NEEDS = (
    ("burrow_username", "burrow_password"),
    ("burrow_password", "burrow_username"),
    ("burrow_password_previous", "burrow_password"),
    ("burrow_token_previous", "burrow_token"),
    ("tls_cert", "tls_key"),
    ("tls_key", "tls_cert"),
    ("api_token_previous", "api_token"),
    ("metrics_auth", "api_token"),
    ("watch_bootstrap", "watch_cluster"),
    ("watch_cluster", "watch_bootstrap"),
)

_PASSWORD_SOURCES = ("event_log_password_file", "event_log_password_command", "event_log_rds_iam")
_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_MINUTE_S = 60
_HIGH_RESOLUTION_S = 10


class SettingsError(Exception):
    """The settings are wrong, so Karrot cannot start. The text has one line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Loaded(NamedTuple):
    """Valid settings, doubts about them in sentences, and where each value that is no default comes from."""

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
    """Load settings. A later source replaces values of an earlier one: defaults, file, environment, ``overrides``.

    The keys of ``overrides`` are attribute names. ``available`` lists the reporters that can be turned on. By default,
    these are the installed reporters. An unknown name in the environment gives a warning, because other programs can
    set it. An unknown name in the file is an error, except if ``strict`` is false. Raises `SettingsError`, which names
    every wrong value.
    """
    available = installed_reporters() if available is None else available
    try:
        file = sources.from_file(config) if config else File({}, None)
        layers = [file.given, sources.from_environment(environ), sources.from_command_line(overrides)]
        given = compat.with_defaults(sources.merged(layers, plain=_BY_NAME.keys() - _SECRETS, secret=_SECRETS))
    except SourceError as error:
        raise SettingsError([str(error)]) from error
    parsed, problems = _parsed(given)
    settings = Settings(**parsed)
    extras, unreadable = _extras(given, settings.reporters)
    unknown = _unknown_in_file(given, file, (*settings.reporters, *available)) if strict else ()
    problems += [
        *unreadable,
        *(f"{given[name].label} is not a setting of Karrot{_suggestion(name, in_file=True)}" for name in unknown),
        *_missing_reporters(settings, available),
        *_lost_scaling_metrics(given, settings),
    ]
    ignored = list(_ignored({name: given[name] for name in given if name not in unknown}, settings, available))
    if problems or (problems := list(_contradictions(settings))):
        raise SettingsError([*problems, *ignored])  # a value is often missing because its name is misspelt
    files = {known.attribute: given[name] for name, known in _BY_NAME.items() if name in given and given[name].file}
    told = {name: each.source(name) for name, each in given.items()}
    complete = replace(settings, extras=extras, secret_files=files)
    return Loaded(complete, (*ignored, *_doubts(settings, file, config)), told)


def read_secrets_again(settings: Settings) -> Settings:
    """The settings with the present secrets of their files. Raises `SourceError` if a file cannot be used."""
    secrets: dict[str, Any] = {}
    for attribute, given in settings.secret_files.items():
        secrets[attribute] = types.secret.read(sources.secret_text(given))
    return replace(settings, **secrets)


def checked(settings: Settings) -> Settings:
    """Return the settings. Raises `SettingsError` if they contradict each other."""
    if problems := list(_contradictions(settings)):
        raise SettingsError(problems)
    return settings


def installed_reporters() -> tuple[str, ...]:
    """The names of the reporters of all installed packages, with Karrot's own."""
    return tuple(sorted({point.name for point in entry_points(group="karrot.reporters")}))


def _parsed(given: Mapping[str, Given]) -> tuple[dict[str, Any], list[str]]:
    parsed, problems = {}, []
    for name in given.keys() & _BY_NAME.keys():
        known, told = _BY_NAME[name], given[name]
        try:
            text = sources.secret_text(told) if known.is_secret else told.text.strip()
            parsed[known.attribute] = types.checked(known.kind, told.label, text)
        except (SourceError, ValueError) as error:
            problems.append(str(error))
    return parsed, sorted(problems)


def _extras(given: Mapping[str, Given], reporters: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The settings of other reporters that are on, and a sentence for each file that cannot be read."""
    prefixes = tuple(map(reporter_prefix, reporters))
    extras, problems = {}, []
    for name in sorted(given.keys() - _BY_NAME.keys()):
        try:
            if name.startswith(prefixes):
                extras[name] = sources.secret_text(given[name])
        except SourceError as error:
            problems.append(str(error))
    return extras, problems


def _unknown_in_file(given: Mapping[str, Given], file: File, reporters: Iterable[str]) -> list[str]:
    """The names from the file that are neither settings of Karrot nor of a reporter of another package."""
    prefixes = tuple(prefix for prefix in map(reporter_prefix, reporters) if not _is_described(prefix))
    written = {each.label for each in file.given.values()}
    unknown = given.keys() - _BY_NAME.keys()
    return sorted(name for name in unknown if given[name].label in written and not name.startswith(prefixes))


def _missing_reporters(settings: Settings, available: Collection[str]) -> Iterator[str]:
    offer = f"available reporters: {', '.join(sorted(available))}"
    if missing := [name for name in settings.reporters if name not in available]:
        yield f"KARROT_REPORTERS names {', '.join(missing)}, which no installed package provides; {offer}"


def _lost_scaling_metrics(given: Mapping[str, Given], settings: Settings) -> Iterator[str]:
    """An error if the cloudwatch reporter has settings but is off. A service may scale by the reporter's metrics."""
    asked = sorted({given[name].label for name in given if name.startswith(CLOUDWATCH)})
    if asked and "cloudwatch" not in settings.reporters:
        yield (
            f"{', '.join(asked)}: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; "
            f"add cloudwatch to KARROT_REPORTERS, or remove {'this setting' if len(asked) == 1 else 'these settings'}"
        )


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.event_log == "memory" and settings.workers > 1:
        yield (
            f"KARROT_WORKERS is {settings.workers}: it must be 1 with KARROT_EVENT_LOG=memory, as workers cannot share "
            "an event log in memory"
        )
    yield from _contradictions_about_postgresql(settings)
    for attribute, partner in _NEEDS:
        if getattr(settings, attribute) and not getattr(settings, partner):
            yield f"{_variable(attribute)} needs {_variable(partner)}: set both, or remove {_variable(attribute)}"
    if settings.burrow_url and settings.stale_after < 2 * settings.resync_interval:
        yield (
            f"KARROT_STALE_AFTER is {settings.stale_after}s, less than twice KARROT_RESYNC_INTERVAL "
            f"({settings.resync_interval}s): a group that only the REST API reports would expire between two resyncs"
        )
    if settings.watch_bootstrap:
        yield from _contradictions_about_watch(settings)
    if "archive" in settings.reporters:
        yield from _contradictions_about_the_archive(settings)
    if "kafka" in settings.reporters and not settings.kafka_bootstrap:
        yield "KARROT_REPORTERS has kafka, which needs KARROT_KAFKA_BOOTSTRAP: set it to the brokers, HOST:PORT"
    for attribute in ("tls_cert", "tls_key", "watch_properties", "kafka_properties", "event_log_password_file"):
        file = getattr(settings, attribute)
        if file and not os.access(file, os.R_OK):
            yield f"{_variable(attribute)} names {str(file)!r}, which cannot be read"


def _contradictions_about_postgresql(settings: Settings) -> Iterator[str]:
    chosen = [name for name in _PASSWORD_SOURCES if getattr(settings, name)]
    if chosen and not settings.is_on_postgresql:
        yield f"{_variable(chosen[0])} needs KARROT_EVENT_LOG=postgresql://...: set both, or remove it"
    if len(chosen) > 1:
        yield f"{' and '.join(map(_variable, chosen))} are set: set only one of them"
    if settings.is_on_postgresql and "archive" in settings.reporters and not isinstance(settings.archive_dir, Bucket):
        yield (
            "KARROT_REPORTERS has archive, and several replicas can share KARROT_EVENT_LOG: set KARROT_ARCHIVE_DIR to "
            "s3://bucket/prefix, because the next leader may be on another machine"
        )


def _contradictions_about_watch(settings: Settings) -> Iterator[str]:
    if settings.stale_after < 2 * settings.watch_interval:
        yield (
            f"KARROT_STALE_AFTER is {settings.stale_after}s, less than twice KARROT_WATCH_INTERVAL "
            f"({settings.watch_interval}s): groups would expire between two polls"
        )
    if settings.watch_properties and settings.watch_properties_inline:
        yield "KARROT_WATCH_PROPERTIES and KARROT_WATCH_PROPERTIES_INLINE are both set: set only one of them"


def _contradictions_about_the_archive(settings: Settings) -> Iterator[str]:
    if settings.retention < 2 * settings.archive_segment_seconds:
        yield (
            f"KARROT_RETENTION is {settings.retention}s, less than twice KARROT_ARCHIVE_SEGMENT_SECONDS "
            f"({settings.archive_segment_seconds}s): events would be deleted before they are archived"
        )
    if settings.archive_max_bytes < 2 * settings.archive_segment_bytes:
        yield (
            f"KARROT_ARCHIVE_MAX_BYTES is {settings.archive_max_bytes}, less than twice KARROT_ARCHIVE_SEGMENT_BYTES "
            f"({settings.archive_segment_bytes}): a segment would be deleted as soon as it is written"
        )
    if isinstance(settings.archive_dir, Path) and settings.archive_dir.is_file():
        yield f"KARROT_ARCHIVE_DIR names {str(settings.archive_dir)!r}, which is a file: it must be a folder"


def _ignored(given: Mapping[str, Given], settings: Settings, available: Collection[str]) -> Iterator[str]:
    """A sentence for each unknown name (its value may be secret), and for settings of reporters that are off."""
    own = tuple(prefix for prefix in map(reporter_prefix, settings.reporters) if not _is_described(prefix))
    for name in sorted(given.keys() - _BY_NAME.keys()):
        if not name.startswith(own):
            yield f"{given[name].label} {_why_ignored(name, available)}"
    for reporter, names, loss in (("archive", ARCHIVE, "archived"), ("kafka", KAFKA, "sent to Kafka")):
        asked = sorted(given[name].label for name in given if name in _BY_NAME and name.startswith(names))
        if asked and reporter not in settings.reporters:
            yield f"{', '.join(asked)}: set, but {reporter} is not in KARROT_REPORTERS, so no event is {loss}"


def _is_described(prefix: str) -> bool:
    """Whether `karrot.settings.options` declares the settings of a reporter."""
    return any(name.startswith(prefix) for name in _BY_NAME)


def _why_ignored(name: str, available: Collection[str]) -> str:
    for reporter in available:
        if name.startswith(reporter_prefix(reporter)) and not _is_described(reporter_prefix(reporter)):
            return f"belongs to the reporter {reporter}, which is not in KARROT_REPORTERS: it has no effect"
    return f"is not a setting of Karrot: it has no effect{_suggestion(name)}"


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
    if not _is_loopback(settings.bind.host):
        yield from _open_to_all(settings)
    if "cloudwatch" in settings.reporters:
        yield from _doubts_about_cloudwatch(settings)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. Does not look up names."""
    name = host.lower().removesuffix(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host)).is_loopback  # the system also accepts 127.1
        except OSError:
            return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _open_to_all(settings: Settings) -> Iterator[str]:
    """One warning for both posting and reading, because most containers start without any password."""
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


def _doubts_about_cloudwatch(settings: Settings) -> Iterator[str]:
    if settings.cloudwatch_ttl < 2 * settings.cloudwatch_interval:
        yield (
            f"KARROT_CLOUDWATCH_TTL is {settings.cloudwatch_ttl}s, less than two intervals: values would be too old "
            f"before they are sent, so Karrot uses {2 * settings.cloudwatch_interval}s"
        )
    if settings.cloudwatch_interval > _MINUTE_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {settings.cloudwatch_interval}s: alarms with a period of one minute will "
            f"see minutes without data; set at most {_MINUTE_S}s"
        )
    if settings.cloudwatch_resolution == 1 and settings.cloudwatch_interval > _HIGH_RESOLUTION_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {settings.cloudwatch_interval}s with KARROT_CLOUDWATCH_RESOLUTION=1: an "
            f"alarm with a period of {_HIGH_RESOLUTION_S}s needs a value every {_HIGH_RESOLUTION_S}s"
        )


def _variable(attribute: str) -> str:
    return PREFIX + attribute.upper()
