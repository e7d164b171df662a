"""Loads the settings that a start or a reload runs with from all their sources."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from karrot.settings import checks, sources, types
from karrot.settings.options import OPTIONS, Settings, reporter_prefix
from karrot.settings.sources import File, Given, SourceError

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
        *checks.missing_reporters(settings, available),
        *checks.lost_scaling_metrics(given, settings),
    ]
    ignored = [*checks.unknown(given, settings, available), *checks.unused(given, settings)]
    if problems or (problems := list(checks.contradictions(settings))):
        raise SettingsError([*problems, *ignored])  # a wrong name is often why a value is missing
    return Loaded(replace(settings, extras=extras), (*ignored, *checks.doubts(settings, file, config)))


def checked(settings: Settings) -> Settings:
    """The settings, unless they contradict each other: then `SettingsError`."""
    if problems := list(checks.contradictions(settings)):
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
