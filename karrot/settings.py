"""Every option: its name, default, kind and one sentence; and the settings that a start or a reload runs with."""
# ruff: noqa: RUF009  (an option is declared where its attribute is: `option` and the kinds only describe it)

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from karrot import sources, values
from karrot.sources import PREFIX, File, Given, SourceError
from karrot.values import Address, Kind, Secret

__all__ = [
    "OPTIONS",
    "RESERVED",
    "Loaded",
    "Option",
    "Settings",
    "SettingsError",
    "checked",
    "effective",
    "load",
    "needs_restart",
]

T = TypeVar("T")


class Option(NamedTuple):
    """What is known of one setting. ``reloads`` is false where a change needs a restart."""

    attribute: str
    default: str
    kind: Kind[Any]
    sentence: str
    reloads: bool

    @property
    def name(self) -> str:
        """The environment variable."""
        return PREFIX + self.attribute.upper()

    @property
    def is_secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind is values.secret


def option(default: str, kind: Kind[T], sentence: str, *, reloads: bool = True) -> T:
    """Declare an option that always has a value."""
    return field(default=kind.read(default), metadata={"of": (default, kind, sentence, reloads)})


def listed(kind: Kind[tuple[str, ...]], sentence: str) -> tuple[str, ...]:
    """Declare an option that is a list, empty unless told."""
    return field(default=(), metadata={"of": ("", kind, sentence, True)})


def optional(kind: Kind[T], sentence: str) -> T | None:
    """Declare an option that may be left out."""
    return field(default=None, metadata={"of": ("", kind, sentence, True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What Karrot runs with. Spans of time are seconds, sizes are bytes."""

    log: str = option(
        "INFO", values.one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "The lowest level that is logged."
    )
    reporters: tuple[str, ...] = option("prometheus", values.names, "The reporters that are on.")
    compat: str | None = optional(
        values.one_of("2019"), "Turns the defaults of the first Karrot on; needs the cloudwatch reporter."
    )
    external_url: str | None = optional(
        values.url, "The address at which people reach Karrot, for links and for the configuration Burrow is given."
    )
    expected_clusters: tuple[str, ...] = listed(
        values.texts, "Clusters whose Burrow must be heard: each is exported as never heard until it is."
    )

    bind: Address = option(
        "0.0.0.0:5000", values.address, "Where to listen; [::]:5000 takes IPv6 and IPv4.", reloads=False
    )
    workers: int = option("2", values.whole(1, 64), "Worker processes.")
    threads: int = option(
        "16",
        values.whole(1, 256),
        "Threads of each worker, and a quarter as many for scrapes and pages; events need none.",
    )
    max_body: int = option("8MiB", values.size(2**10, 2**25), "The largest event that is taken.")
    header_timeout: float = option("2s", values.timeout(0.1, 60), "How long a client may take to send its headers.")
    body_timeout: float = option("4s", values.timeout(0.1, 60), "How long a client may take to send its body.")
    tls_cert: Path | None = optional(values.path, "The certificate chain (PEM); with it Karrot speaks HTTPS.")
    tls_key: Path | None = optional(values.path, "The key of the certificate (PEM).")

    data_dir: Path = option("./karrot-data", values.path, "Where the event log lives; a local disk.", reloads=False)
    event_log: str = option(
        "sqlite",
        values.one_of("sqlite", "memory", note="postgresql:// is refused until it is built"),
        "How events are kept; memory forgets them at the end.",
        reloads=False,
    )
    retention: int = option("24h", values.duration(1, 3650 * 86400), "How long an event is kept.")
    max_log_bytes: int = option(
        "1GiB", values.size(2**20, 2**46), "How large the event log may grow; the oldest events go first."
    )
    stale_after: int = option(
        "300s", values.duration(1, 365 * 86400), "How long after its last event a group is still shown."
    )

    max_consumers: int = option(
        "50000", values.whole(1, 10_000_000), "How many groups are tracked; more are logged and counted."
    )
    partition_metrics: bool = option(
        "false", values.flag, "Exports lag and status of each partition that Burrow lists."
    )
    topic_metrics: bool = option("false", values.flag, "Exports the lag of each topic of a group.")
    exclude_consumers: re.Pattern[str] | None = optional(
        values.pattern, "Groups whose name matches anywhere are stored but not exported."
    )

    burrow_username: str | None = optional(values.user, "The user of Basic authentication on /burrow.")
    burrow_password: Secret | None = optional(values.secret, "The password of Basic authentication on /burrow.")
    burrow_password_previous: Secret | None = optional(
        values.secret, "A password that is still valid while it is being changed."
    )
    burrow_token: Secret | None = optional(values.secret, "The token of Bearer authentication on /burrow.")
    burrow_token_previous: Secret | None = optional(
        values.secret, "A token that is still valid while it is being changed."
    )
    api_token: Secret | None = optional(
        values.secret, "The token of Bearer authentication on the pages, the API and /config."
    )
    metrics_auth: bool = option("false", values.flag, "Asks for the API token on /metrics too.")

    extras: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``KARROT_*`` values that belong to a reporter that is on; any of them may be a secret."""

    def reporter_settings(self, reporter: str) -> Mapping[str, str]:
        """The ``KARROT_<REPORTER>_*`` values: prefix removed, in lower case."""
        prefix = reporter_prefix(reporter)
        return {
            name.removeprefix(prefix).lower(): text for name, text in self.extras.items() if name.startswith(prefix)
        }


_ARCHIVE = ("DIR", "SEGMENT_SECONDS", "SEGMENT_BYTES", "RETENTION", "MAX_BYTES")
_NEEDS = (
    ("burrow_username", "burrow_password"),
    ("burrow_password", "burrow_username"),
    ("burrow_password_previous", "burrow_password"),
    ("burrow_token_previous", "burrow_token"),
    ("tls_cert", "tls_key"),
    ("tls_key", "tls_cert"),
    ("metrics_auth", "api_token"),
)

OPTIONS = tuple(Option(each.name, *each.metadata["of"]) for each in fields(Settings) if "of" in each.metadata)
"""Every option, in the order of the reference."""

CLOUDWATCH = "KARROT_CLOUDWATCH_"
IAM_ROLE = "KARROT_IAM_ROLE"
RESERVED = (
    dict.fromkeys(("KARROT_BURROW_URL", "KARROT_RESYNC_INTERVAL"), "the resynchronisation with Burrow's REST API")
    | {f"KARROT_ARCHIVE_{each}": "the archive reporter" for each in _ARCHIVE}
    | {f"KARROT_KAFKA_{each}": "the kafka reporter" for each in ("BOOTSTRAP", "TOPIC")}
    | {f"KARROT_WATCH_{each}": "watching Kafka itself" for each in ("BOOTSTRAP", "CLUSTER", "INTERVAL", "PROPERTIES")}
    | {"KARROT_TABLES_DIR": "the tables of the pipeline"}
)
"""Names that will mean something and do not yet."""

_BY_NAME = {each.name: each for each in OPTIONS}
_SECRETS = frozenset(each.name for each in OPTIONS if each.is_secret)


def reporter_prefix(reporter: str) -> str:
    """What the names of a reporter's own settings begin with."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9]', '_', reporter).upper()}_"


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
        given = sources.merged(layers, plain=_BY_NAME.keys() - _SECRETS, secret=_SECRETS)
    except SourceError as error:
        raise SettingsError([str(error)]) from error
    parsed, problems = _parsed(given)
    settings = Settings(**parsed)
    extras, unreadable = _extras(given, settings.reporters)
    problems += [
        *unreadable,
        *_missing_reporters(settings, available),
        *_lost_scaling_metrics(given, settings, available),
    ]
    ignored = list(_unknown(given, settings, available))
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


def effective(settings: Settings) -> dict[str, str]:
    """Every setting as text under its ``KARROT_*`` name; secrets, and all that belongs to a reporter, as ``***``."""
    shown = {option.name: _show(option, getattr(settings, option.attribute)) for option in OPTIONS}
    return shown | dict.fromkeys(sorted(settings.extras), "***")


def needs_restart(old: Settings, new: Settings) -> tuple[str, ...]:
    """The names of settings that differ and that a reload cannot change."""
    return tuple(
        each.name
        for each in OPTIONS
        if not each.reloads and getattr(old, each.attribute) != getattr(new, each.attribute)
    )


def _show(option: Option, value: object) -> str:
    return "" if value is None else option.kind.show(value)


def _parsed(given: Mapping[str, Given]) -> tuple[dict[str, Any], list[str]]:
    """The values by attribute, and a sentence for each that is wrong."""
    parsed, problems = {}, []
    for name in given.keys() & _BY_NAME.keys():
        known, told = _BY_NAME[name], given[name]
        try:
            text = sources.secret_text(told) if known.is_secret else told.text.strip()
            parsed[known.attribute] = values.checked(known.kind, told.label, text)
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


def _missing_reporters(settings: Settings, available: Collection[str]) -> Iterator[str]:
    """Reporters that nobody provides."""
    offer = f"available are {', '.join(sorted(available))}"
    if missing := [name for name in settings.reporters if name not in available]:
        yield f"KARROT_REPORTERS names {', '.join(missing)}, which no installed package provides; {offer}"
    if settings.compat and "cloudwatch" not in available:
        yield (
            f"KARROT_COMPAT is {settings.compat!r}: the first Karrot's defaults include the cloudwatch reporter, "
            f"which no installed package provides; {offer}"
        )


def _lost_scaling_metrics(given: Mapping[str, Given], settings: Settings, available: Collection[str]) -> Iterator[str]:
    """Nobody loses the metric they scale by without being told."""
    asked = sorted(given[name].label for name in given if name.startswith(CLOUDWATCH) or name == IAM_ROLE)
    if asked and "cloudwatch" not in settings.reporters:
        here = "" if "cloudwatch" in available else " (no installed package provides it yet)"
        yield (
            f"{', '.join(asked)}: set, but the cloudwatch reporter is off, so CloudWatch would get no metrics; "
            f"either add cloudwatch to KARROT_REPORTERS{here} or remove {'it' if len(asked) == 1 else 'them'}"
        )


def _contradictions(settings: Settings) -> Iterator[str]:
    """Values that are right alone and wrong together."""
    if settings.event_log == "memory" and settings.workers > 1:
        yield f"KARROT_WORKERS is {settings.workers}: it must be 1 with KARROT_EVENT_LOG=memory, which no two can share"
    for attribute, partner in _NEEDS:
        if getattr(settings, attribute) and not getattr(settings, partner):
            yield f"{_variable(attribute)} needs {_variable(partner)}: set that too, or remove {_variable(attribute)}"
    for attribute in ("tls_cert", "tls_key"):
        file = getattr(settings, attribute)
        if file and not os.access(file, os.R_OK):
            yield f"{_variable(attribute)} names {str(file)!r}, which cannot be read"


def _unknown(given: Mapping[str, Given], settings: Settings, available: Collection[str]) -> Iterator[str]:
    """Names that have no effect. Their values are not shown: nobody knows whether they are secret."""
    spoken_for = (*map(reporter_prefix, settings.reporters), CLOUDWATCH, IAM_ROLE)
    for name in sorted(given.keys() - _BY_NAME.keys()):
        if not name.startswith(spoken_for):
            yield f"{given[name].label} {_why_ignored(name, available)}"


def _why_ignored(name: str, available: Collection[str]) -> str:
    if part := RESERVED.get(name):
        return f"is reserved for {part}, which this version does not have: it has no effect"
    for reporter in available:
        if name.startswith(reporter_prefix(reporter)):
            return f"is of the reporter {reporter}, which is not in KARROT_REPORTERS: it has no effect"
    close = difflib.get_close_matches(name, [*_BY_NAME, *RESERVED], n=1, cutoff=0.8)
    return "is not a setting of Karrot: it has no effect" + (f"; did you mean {close[0]}?" if close else "")


def _doubts(settings: Settings, file: File, config: Path | None) -> Iterator[str]:
    """What is allowed and probably not meant."""
    if file.open_mode and _SECRETS & file.given.keys():
        yield f"{config} holds a secret and has mode {file.open_mode}: everybody on this machine can read it"
    if upper := [name for name in settings.expected_clusters if name != name.lower()]:
        yield f"KARROT_EXPECTED_CLUSTERS has {', '.join(upper)}: Burrow writes the names of clusters in lower case"


def _variable(attribute: str) -> str:
    return PREFIX + attribute.upper()
