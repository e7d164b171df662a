"""Reads from Burrow's settings file what ``karrot pipeline evaluate`` has too, and names the settings it leaves out.

The names and defaults of the settings are those of Burrow v1.9.5 (``core/internal/storage/inmemory.go``,
``core/internal/evaluator/caching.go``, ``core/internal/consumer/kafka_client.go``, ``core/internal/notifier/``).
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from karrot.burrow.notifier import NameFilter, NotifierSettings
from karrot.burrow.storage import DEFAULT_EXPIRE_GROUP
from karrot.event import Status
from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.settings.types import ValueKind, checked, duration, flag, pattern, share, whole

TAKEN: Final[Mapping[str, Mapping[str, ValueKind[Any]]]] = {
    "cluster": {"offset-refresh": duration(1, 86_400)},
    "consumer": {"group-allowlist": pattern, "group-denylist": pattern},
    "storage": {
        "intervals": whole(1, 10_000),
        "expire-group": duration(1, 366 * 86_400),
        "min-distance": duration(0, 86_400),
        "group-allowlist": pattern,
        "group-denylist": pattern,
    },
    "evaluator": {"allowed-lag": whole(0, 2**62), "minimum-complete": share},
    "notifier": {
        "interval": duration(1, 86_400),
        "threshold": whole(0, 6),
        "send-interval": duration(0, 366 * 86_400),
        "send-once": flag,
        "send-close": flag,
        "group-allowlist": pattern,
        "group-denylist": pattern,
    },
}
"""The settings that are taken, by the type of the section."""

_CHOOSING: Final = frozenset({"class-name", "cluster"})
"""Settings that are neither taken nor left out: they say which section counts."""


class TakenSettings(NamedTuple):
    """The rules of the file; seconds between evaluations and between requests for log ends; what was left out.

    ``left_out`` names settings as ``consumer.local.servers``, and sections without any taken setting as ``zookeeper``.
    """

    asked: EvaluateRules
    interval: int
    offset_refresh: int
    left_out: tuple[str, ...]


def read_burrow_settings(text: str, cluster: str, notifier: str | None = None) -> TakenSettings:
    """Read the settings for a cluster. ``notifier`` names a section ``[notifier.NAME]``, if there are several.

    Raises `ValueError` with a sentence if the text is not TOML, if a value is wrong, or if the sections do not say
    which settings count.
    """
    try:
        file = _lowered(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from error
    # Burrow makes names of clusters lower-case.
    chosen = {
        "cluster": _of_cluster(file, cluster.lower()),
        "consumer": _consumers(file, cluster.lower()),
        "storage": _one(file, "storage", None),
        "evaluator": _one(file, "evaluator", None),
        "notifier": _one(file, "notifier", notifier),
    }
    found = {kind: _values(kind, sections) for kind, sections in chosen.items()}
    storage, evaluator, told = found["storage"], found["evaluator"], found["notifier"]
    rules = RuleSet(
        "burrow.toml",
        storage.get("intervals", RuleSet("").intervals),
        evaluator.get("allowed-lag", 0),
        storage.get("min-distance", 0),
        evaluator.get("minimum-complete", 0.0),
    )
    notified = NotifierSettings(
        told.get("threshold", Status.WARN),
        # Burrow's default is the interval, so that every second evaluation would be sent, or each one, by chance.
        send_interval=told.get("send-interval", 0),
        send_close=told.get("send-close", False),
        send_once=told.get("send-once", False),
    )
    read = _filter(found["consumer"]).joined(_filter(storage))
    asked = EvaluateRules(
        rules, notified, storage.get("expire-group", DEFAULT_EXPIRE_GROUP), read=read, sent=_filter(told)
    )
    left_out = tuple(sorted(_left_out(file, chosen)))
    return TakenSettings(asked, told.get("interval", 60), found["cluster"].get("offset-refresh", 10), left_out)


_Sections = Mapping[str, Mapping[str, Any]]


def _lowered(value: Any) -> Any:
    """Make all names of settings lower-case, as Burrow does."""
    if isinstance(value, dict):
        return {name.lower(): _lowered(each) for name, each in value.items()}
    return value


def _sections(file: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    found = file.get(kind, {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(f"write [{kind}.NAME] and not [{kind}]")
    return found


def _of_cluster(file: Mapping[str, Any], cluster: str) -> _Sections:
    found = _sections(file, "cluster")
    return {cluster: found[cluster]} if cluster in found else {}


def _consumers(file: Mapping[str, Any], cluster: str) -> _Sections:
    found = _sections(file, "consumer")
    reads = {name: each for name, each in found.items() if str(each.get("cluster", "")).lower() == cluster}
    if found and not reads:
        clusters = ", ".join(sorted({str(each.get("cluster", "")) for each in found.values()}))
        raise ValueError(f"no [consumer.NAME] is for the cluster {cluster!r}, but for {clusters}")
    kafka = {name: each for name, each in reads.items() if each.get("class-name") == "kafka"}
    if len(kafka) > 1:
        raise ValueError(f"several consumers read the cluster {cluster!r}: {', '.join(sorted(kafka))}")
    return kafka


def _one(file: Mapping[str, Any], kind: str, name: str | None) -> _Sections:
    found = _sections(file, kind)
    if name is not None:
        if name.lower() not in found:
            raise ValueError(f"there is no [{kind}.{name}], but {', '.join(sorted(found)) or 'none'}")
        return {name.lower(): found[name.lower()]}
    if len(found) > 1:
        raise ValueError(f"it has several [{kind}.NAME]: {', '.join(sorted(found))}. Choose one of them")
    return found


def _values(kind: str, sections: _Sections) -> dict[str, Any]:
    """The checked values of the settings that are taken. For Burrow, an empty text is no value."""
    values: dict[str, Any] = {}
    for name, settings in sections.items():
        for setting in settings.keys() & TAKEN[kind].keys():
            text = str(settings[setting])
            if text:
                known = TAKEN[kind][setting]
                values[setting] = checked(known, f"{kind}.{name}.{setting}", text.lower() if known is flag else text)
    return values


def _filter(values: Mapping[str, Any]) -> NameFilter:
    return NameFilter.of(values.get("group-allowlist"), values.get("group-denylist"))


def _left_out(file: Mapping[str, Any], chosen: Mapping[str, _Sections]) -> Iterator[str]:
    for kind, content in file.items():
        if kind not in chosen:
            yield kind
            continue
        for name, settings in content.items():
            if name not in chosen[kind]:
                yield f"{kind}.{name}"
                continue
            known = TAKEN[kind].keys() | _CHOOSING
            yield from (f"{kind}.{name}.{setting}" for setting in settings if setting not in known)
