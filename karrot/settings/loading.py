"""Loads the settings that a start or a reload runs with from all their sources, and checks that they hold together."""

import difflib
import ipaddress
import os
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from karrot.settings import sources, types
from karrot.settings.options import ARCHIVE, CLOUDWATCH, KAFKA, OPTIONS, Settings, reporter_prefix
from karrot.settings.sources import PREFIX, File, Given, SourceError

_BY_NAME = {each.name: each for each in OPTIONS}
_SECRETS = frozenset(each.name for each in OPTIONS if each.is_secret)
_COMPAT = "KARROT_COMPAT"
_FIRST_KARROT = "2019"
_COMPAT_DEFAULTS = {
    "KARROT_REPORTERS": "prometheus,cloudwatch",
    "KARROT_CLOUDWATCH_NAMESPACE": "GumGum/Kafka/Burrow/ConsumerLag",
    "KARROT_CLOUDWATCH_LAYOUT": "legacy",
    # It had no bound: a group beyond one would lose the metric that it scales by.
    "KARROT_CLOUDWATCH_MAX_GROUPS": "1000000",
}
_NEEDS = (
    ("burrow_username", "burrow_password"),
    ("burrow_password", "burrow_username"),
    ("burrow_password_previous", "burrow_password"),
    ("burrow_token_previous", "burrow_token"),
    ("tls_cert", "tls_key"),
    ("tls_key", "tls_cert"),
    ("metrics_auth", "api_token"),
    ("watch_bootstrap", "watch_cluster"),
    ("watch_cluster", "watch_bootstrap"),
)

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_MINUTE_S = 60
_HIGH_RESOLUTION_S = 10


class SettingsError(Exception):
    """Settings that Karrot cannot start with; the text has one line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Loaded(NamedTuple):
    """Settings that hold together, and sentences about what was ignored or looks wrong."""

    settings: Settings
    warnings: tuple[str, ...]


def load(
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    overrides: Mapping[str, str] = MappingProxyType({}),
    available: Collection[str] | None = None,
) -> Loaded:
    """Settings from defaults, then the file, then the environment, then ``overrides`` (by attribute name).

    ``available`` are the reporters that can be turned on: those that are installed, unless told. Raises
    `SettingsError` that names every wrong value.
    """
    available = installed_reporters() if available is None else available
    try:
        file = sources.from_file(config) if config else File({}, None)
        layers = [file.given, sources.from_environment(environ), sources.from_command_line(overrides)]
        given = _with_defaults_of_compat(sources.merged(layers, plain=_BY_NAME.keys() - _SECRETS, secret=_SECRETS))
    except SourceError as error:
        raise SettingsError([str(error)]) from error
    parsed, problems = _parsed(given)
    settings = Settings(**parsed)
    extras, unreadable = _extras(given, settings.reporters)
    problems += [
        *unreadable,
        *_missing_reporters(settings, available),
        *_lost_scaling_metrics(given, settings),
    ]
    ignored = list(_ignored(given, settings, available))
    if problems or (problems := list(_contradictions(settings))):
        raise SettingsError([*problems, *ignored])  # a wrong name is often why a value is missing
    return Loaded(replace(settings, extras=extras), (*ignored, *_doubts(settings, file, config)))


def checked(settings: Settings) -> Settings:
    """The settings, unless they contradict each other: then `SettingsError`."""
    if problems := list(_contradictions(settings)):
        raise SettingsError(problems)
    return settings


def installed_reporters() -> tuple[str, ...]:
    """The names under which installed packages, Karrot among them, offer reporters."""
    return tuple(sorted({point.name for point in entry_points(group="karrot.reporters")}))


def _parsed(given: Mapping[str, Given]) -> tuple[dict[str, Any], list[str]]:
    """The values by attribute, and a sentence for each that is wrong."""
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
    """The settings of reporters that are on, read from their files, and a sentence for each file that is not there."""
    prefixes = tuple(map(reporter_prefix, reporters))
    extras, problems = {}, []
    for name in sorted(given.keys() - _BY_NAME.keys()):
        try:
            if name.startswith(prefixes):
                extras[name] = sources.secret_text(given[name])
        except SourceError as error:
            problems.append(str(error))
    return extras, problems


def _with_defaults_of_compat(given: Mapping[str, Given]) -> dict[str, Given]:
    """What was given, with the first Karrot's defaults below it if they were asked for."""
    asked = given.get(_COMPAT)
    if asked is None or asked.text.strip() != _FIRST_KARROT:
        return dict(given)
    label = f"{_COMPAT}={_FIRST_KARROT}"
    return {name: Given(label, text) for name, text in _COMPAT_DEFAULTS.items()} | dict(given)


def _missing_reporters(settings: Settings, available: Collection[str]) -> Iterator[str]:
    """Reporters that nobody provides."""
    offer = f"available are {', '.join(sorted(available))}"
    if missing := [name for name in settings.reporters if name not in available]:
        yield f"KARROT_REPORTERS names {', '.join(missing)}, which no installed package provides; {offer}"


def _lost_scaling_metrics(given: Mapping[str, Given], settings: Settings) -> Iterator[str]:
    """Nobody loses the metric they scale by without being told."""
    asked = sorted({given[name].label for name in given if name.startswith(CLOUDWATCH)})
    if asked and "cloudwatch" not in settings.reporters:
        yield (
            f"{', '.join(asked)}: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; "
            f"either add cloudwatch to KARROT_REPORTERS or remove {'it' if len(asked) == 1 else 'them'}"
        )


def _contradictions(settings: Settings) -> Iterator[str]:
    """Values that are right alone and wrong together."""
    if settings.event_log == "memory" and settings.workers > 1:
        yield f"KARROT_WORKERS is {settings.workers}: it must be 1 with KARROT_EVENT_LOG=memory, which no two can share"
    for attribute, partner in _NEEDS:
        if getattr(settings, attribute) and not getattr(settings, partner):
            yield f"{_variable(attribute)} needs {_variable(partner)}: set that too, or remove {_variable(attribute)}"
    if settings.burrow_url and settings.stale_after < 2 * settings.resync_interval:
        yield (
            f"KARROT_STALE_AFTER is {settings.stale_after}s, less than twice KARROT_RESYNC_INTERVAL "
            f"({settings.resync_interval}s): a group that only the REST API tells of would come and go"
        )
    if settings.watch_bootstrap and settings.stale_after < 2 * settings.watch_interval:
        yield (
            f"KARROT_STALE_AFTER is {settings.stale_after}s, less than twice KARROT_WATCH_INTERVAL "
            f"({settings.watch_interval}s): groups would expire between two polls"
        )
    if "archive" in settings.reporters:
        yield from _contradictions_about_the_archive(settings)
    if "kafka" in settings.reporters and not settings.kafka_bootstrap:
        yield "KARROT_REPORTERS has kafka, which needs KARROT_KAFKA_BOOTSTRAP: the brokers it writes to, HOST:PORT"
    for attribute in ("tls_cert", "tls_key", "watch_properties", "kafka_properties"):
        file = getattr(settings, attribute)
        if file and not os.access(file, os.R_OK):
            yield f"{_variable(attribute)} names {str(file)!r}, which cannot be read"


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
    if settings.archive_dir and Path(settings.archive_dir).is_file():
        yield f"KARROT_ARCHIVE_DIR names {settings.archive_dir!r}, which is a file: it must be a folder"


def _ignored(given: Mapping[str, Given], settings: Settings, available: Collection[str]) -> Iterator[str]:
    """Names without effect (their values may be secret, so are not shown), and settings of reporters that are off."""
    own = tuple(prefix for prefix in map(reporter_prefix, settings.reporters) if not _is_described(prefix))
    for name in sorted(given.keys() - _BY_NAME.keys()):
        if not name.startswith(own):
            yield f"{given[name].label} {_why_ignored(name, available)}"
    for reporter, names, loss in (("archive", ARCHIVE, "archived"), ("kafka", KAFKA, "sent to Kafka")):
        asked = sorted(given[name].label for name in given if name in _BY_NAME and name.startswith(names))
        if asked and reporter not in settings.reporters:
            yield f"{', '.join(asked)}: set, but {reporter} is not in KARROT_REPORTERS, so nothing is {loss}"


def _is_described(prefix: str) -> bool:
    """Whether the settings of a reporter are all listed here."""
    return any(name.startswith(prefix) for name in _BY_NAME)


def _why_ignored(name: str, available: Collection[str]) -> str:
    for reporter in available:
        if name.startswith(reporter_prefix(reporter)) and not _is_described(reporter_prefix(reporter)):
            return f"is of the reporter {reporter}, which is not in KARROT_REPORTERS: it has no effect"
    close = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.8)
    return "is not a setting of Karrot: it has no effect" + (f"; did you mean {close[0]}?" if close else "")


def _doubts(settings: Settings, file: File, config: Path | None) -> Iterator[str]:
    """What is allowed and probably not meant."""
    if file.open_mode and _SECRETS & file.given.keys():
        yield f"{config} holds a secret and has mode {file.open_mode}: everybody on this machine can read it"
    if upper := [name for name in settings.expected_clusters if name != name.lower()]:
        yield f"KARROT_EXPECTED_CLUSTERS has {', '.join(upper)}: Burrow writes the names of clusters in lower case"
    if not _is_loopback(settings.bind.host):
        yield from _open_to_all(settings)
    if "cloudwatch" in settings.reporters:
        yield from _doubts_about_cloudwatch(settings)


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``. No name is looked up."""
    name = host.lower().removesuffix(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host)).is_loopback  # 127.1, as the system reads it
        except OSError:
            return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _open_to_all(settings: Settings) -> Iterator[str]:
    """One sentence for posting and reading together: in a container this is how most start."""
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
            f"when their turn comes, so {2 * settings.cloudwatch_interval}s are used"
        )
    if settings.cloudwatch_interval > _MINUTE_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {settings.cloudwatch_interval}s: alarms with a period of a minute will see "
            "minutes without data"
        )
    if settings.cloudwatch_resolution == 1 and settings.cloudwatch_interval > _HIGH_RESOLUTION_S:
        yield (
            f"KARROT_CLOUDWATCH_INTERVAL is {settings.cloudwatch_interval}s with KARROT_CLOUDWATCH_RESOLUTION=1: an "
            f"alarm with a period of {_HIGH_RESOLUTION_S}s needs a value in each"
        )


def _variable(attribute: str) -> str:
    return PREFIX + attribute.upper()
