"""Reads the settings of burrow.toml that ``karrot pipeline evaluate`` supports, and names the other settings.

The names and defaults of the settings are those of Burrow v1.9.5 (``core/internal/storage/inmemory.go``,
``core/internal/evaluator/caching.go``, ``core/internal/consumer/kafka_client.go``, ``core/internal/notifier/``).
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from functools import reduce
from typing import Any, Final, NamedTuple

from karrot.burrow.notification_rules import NameFilter
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.settings.types import ValueKind, checked, duration, flag, pattern, share, whole

_PATTERN: Final = replace(
    pattern, allowed=r"a pattern that Python can read. It cannot read some of Go's: \pL, \z, \Q...\E, [[:alpha:]], (?U)"
)
_NAMES: Final[Mapping[str, ValueKind[Any]]] = {"group-allowlist": _PATTERN, "group-denylist": _PATTERN}

TAKEN: Final[Mapping[str, Mapping[str, ValueKind[Any]]]] = {
    "cluster": {"offset-refresh": duration(1, 86_400)},
    "consumer": _NAMES,
    "storage": {
        "intervals": whole(1, 10_000),
        "expire-group": duration(1, 366 * 86_400),
        "min-distance": duration(0, 86_400),
        **_NAMES,
    },
    "evaluator": {"allowed-lag": whole(0, 2**62), "minimum-complete": share},
    "notifier": {
        "interval": duration(1, 86_400),
        "threshold": whole(0, 6),
        "send-interval": duration(0, 366 * 86_400),
        "send-once": flag,
        "send-close": flag,
        **_NAMES,
    },
}
"""The supported settings, by the type of their section."""

_OLD_NAMES: Final = {"group-whitelist": "group-allowlist", "group-blacklist": "group-denylist"}
_RULES: Final = ("intervals", "min-distance", "allowed-lag", "minimum-complete")
_OPTIONS: Final = {
    "interval": "every",
    "offset-refresh": "ends_every",
    **dict.fromkeys(_RULES, "rules"),
    **dict.fromkeys(_NAMES, "read"),
}
"""Maps a setting to the option of the command, if their names differ."""

_SPANS: Final = ("every", "ends_every", "send_interval", "expire_group")
_CLOSE: Final = 0.85
"""The similarity (0 to 1) from which an unknown name counts as a typing error of a known name."""

_BURROWS_DEFAULTS: Final = {"notifier": {"threshold": 2, "send-close": False}}
"""Burrow's defaults that differ from the command's defaults, by section."""

_CHOOSING: Final = frozenset({"class-name", "cluster"})
"""Settings that only choose the section, and so are not listed as left out."""

_CHANGING: Final = frozenset(
    {"groups-reaper-refresh", "offsets-topic", "start-latest", "backfill-earliest", "lagcheck"}
)
"""Unsupported settings that change verdicts. ``[lagcheck]`` is a section of Burrow 0.x."""


class Setting(NamedTuple):
    """A supported setting: its name and value as in the file, the option of the command, and the option's value."""

    shown: str
    option: str
    value: Any


class TakenSettings(NamedTuple):
    """The values that a settings file gives to the command's options, and the names of its settings.

    ``options`` also has ``read`` and ``sent``, as in `EvaluateRules`. ``changing`` and ``left_out`` name unsupported
    settings (``consumer.local.servers``) and sections (``zookeeper``). Only ``changing`` changes verdicts.
    """

    options: Mapping[str, Any]
    taken: tuple[Setting, ...]
    changing: tuple[str, ...]
    left_out: tuple[str, ...]


def read_burrow_settings(text: str, cluster: str, notifier: str | None = None) -> TakenSettings:
    """Read the settings for a cluster. ``notifier`` chooses among several sections ``[notifier.NAME]``.

    Raises `ValueError` if ``text`` is not TOML, if a value is wrong, or if the choice of a section is not clear.
    """
    file, cluster = _parsed(text), cluster.lower()  # Burrow makes names of clusters lower-case
    chosen = {
        "cluster": {name: each for name, each in _sections(file, "cluster").items() if name == cluster},
        "consumer": _consumers(file, cluster),
        "storage": _one(file, "storage", None),
        "evaluator": _one(file, "evaluator", None),
        "notifier": _one(file, "notifier", notifier),
    }
    found = {kind: [_taken(kind, *section) for section in sections.items()] for kind, sections in chosen.items()}
    taken = [each for sections in found.values() for section in sections for each in section.values()]
    ruling = (pair for section in found["storage"] + found["evaluator"] for pair in section.items())
    rules = {name.replace("-", "_"): each.value for name, each in ruling if each.option == "rules"}
    stored, sent = (
        reduce(NameFilter.joined, map(_filter, found[kind]), NameFilter()) for kind in ("storage", "notifier")
    )
    read = tuple(_filter(each).joined(stored) for each in found["consumer"]) or (stored,)
    options = {each.option: each.value for each in taken} | {"read": read, "sent": sent}
    left_out = sorted(_left_out(file, chosen, cluster))
    return TakenSettings(
        options | ({"rules": RuleSet("burrow.toml", **rules)} if rules else {}),
        tuple(sorted(taken)),
        tuple(name for name, is_changing in left_out if is_changing),
        tuple(name for name, is_changing in left_out if not is_changing),
    )


_Sections = Mapping[str, Mapping[str, Any]]


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        return _lowered(tomllib.loads(text))  # type: ignore[no-any-return]
    except tomllib.TOMLDecodeError as error:
        if re.search(r'^\[(kafka|storm) "', text, re.MULTILINE):
            raise ValueError("it is a burrow.cfg of Burrow 0.x: write it as the burrow.toml of Burrow 1") from error
        raise ValueError(f"it is not TOML: {error}") from error


def _lowered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name.lower(): _lowered(each) for name, each in value.items()}
    return value


def _sections(file: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    found = file.get(kind, {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(f"write [{kind}.NAME] and not [{kind}]")
    return found


def _consumers(file: Mapping[str, Any], cluster: str) -> _Sections:
    found = _sections(file, "consumer")
    reads = {name: each for name, each in found.items() if str(each.get("cluster", "")).lower() == cluster}
    if found and not reads:
        clusters = ", ".join(sorted({str(each.get("cluster", "")) for each in found.values()}))
        raise ValueError(f"no [consumer.NAME] is for the cluster {cluster!r}, but for {clusters}")
    return {name: each for name, each in reads.items() if each.get("class-name") == "kafka"}


def _one(file: Mapping[str, Any], kind: str, name: str | None) -> _Sections:
    found = _sections(file, kind)
    if name is not None:
        if name.lower() not in found:
            raise ValueError(f"there is no [{kind}.{name}], but {', '.join(sorted(found)) or 'none'}")
        return {name.lower(): found[name.lower()]}
    if len(found) > 1:
        raise ValueError(f"it has several [{kind}.NAME]: {', '.join(sorted(found))}. Choose one of them")
    return found


def _taken(kind: str, section: str, settings: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the supported settings by their current names. Like Burrow, ignore an empty string and a list."""
    found = {}
    for name, given in {**_BURROWS_DEFAULTS.get(kind, {}), **settings}.items():
        if (known := _present(name, settings)) in TAKEN[kind] and (text := str(given)):
            place, read = f"{kind}.{section}.{name}", TAKEN[kind][known]
            is_none = read is _PATTERN and isinstance(given, list | dict)
            written = text.lower() if read is flag or isinstance(given, bool) else text
            value: Any = None if is_none else checked(read, place, written)
            option = "sent" if kind == "notifier" and read is _PATTERN else _OPTIONS.get(known, known.replace("-", "_"))
            shown = f"{place} = {text}" + ("" if name in settings else " (Burrow's default)")
            shown += " (for Burrow no pattern, because it is no text: all groups pass)" if is_none else ""
            found[known] = Setting(shown, option, timedelta(seconds=value) if option in _SPANS else value)
    return found


def _present(name: str, settings: Mapping[str, Any]) -> str:
    """Return the current name of a setting. If the section has both names, return the old name, which is ignored."""
    new = _OLD_NAMES.get(name, name)
    return name if new in settings else new


def _filter(taken: Mapping[str, Setting]) -> NameFilter:
    return NameFilter.of(*(taken[name].value if name in taken else None for name in _NAMES))


def _left_out(file: Mapping[str, Any], chosen: Mapping[str, _Sections], cluster: str) -> Iterator[tuple[str, bool]]:
    for kind, content in file.items():
        if kind not in chosen:
            yield kind, kind in _CHANGING
            continue
        for section, settings in content.items():
            if section not in chosen[kind]:
                # Burrow judges the groups of other consumer classes too, so their sections change verdicts.
                yield f"{kind}.{section}", kind == "consumer" and str(settings.get("cluster", "")).lower() == cluster
                continue
            for name in settings.keys() - _CHOOSING:
                if (known := _present(name, settings)) not in TAKEN[kind]:
                    [*close] = get_close_matches(known, TAKEN[kind], 1, _CLOSE)
                    perhaps = f" (perhaps {close[0]})" if close else ""
                    yield f"{kind}.{section}.{name}{perhaps}", bool(close) or name in _CHANGING | _OLD_NAMES.keys()
