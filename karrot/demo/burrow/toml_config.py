"""Reads a ``burrow.toml`` as viper does, which is Burrow's configuration library.

Keys have no case. Whatever is asked for as a text, a number or a flag is made one; what is not set is ``""``, ``0``,
``false`` or a list that is ``null``. Sources: ``core/internal/httpserver/config.go`` and each module's ``Configure``.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

_TRUE = ("true", "1", "t")

_DEFAULTS: dict[str, dict[str, Any]] = {
    "cluster": {"offset-refresh": 10, "topic-refresh": 60},
    "consumer": {"offsets-topic": "__consumer_offsets"},
    "evaluator": {"expire-cache": 10},
    "httpserver": {"timeout": 300},
    "notifier": {"interval": 60, "threshold": 2, "timeout": 5, "keepalive": 300, "method-open": "POST"},
    "storage": {"intervals": 10, "expire-group": 604_800},
    "client-profile": {"client-id": "burrow-lagchecker", "kafka-version": "2.8.0"},
}
_GLOBAL_DEFAULTS: dict[str, dict[str, Any]] = {
    "zookeeper": {"timeout": 6, "root-path": "/burrow"},
    "logging": {"level": "info", "maxsize": 100, "maxbackups": 10, "maxage": 30},
    "general": {"pidfile": "burrow.pid"},
}


class Viper:
    """The whole configuration."""

    def __init__(self, toml: str) -> None:
        self._tree = _folded(tomllib.loads(toml))

    def names(self, coordinator: str) -> list[str]:
        """The modules of a coordinator."""
        return list(self._tree.get(coordinator, {}))

    def section(self, *path: str) -> "Section | None":
        """One section with Burrow's defaults, ``None`` if there is none."""
        found: Any = self._tree
        for key in path:
            found = found.get(key.lower()) if isinstance(found, dict) else None
        return Section({**_DEFAULTS.get(path[0], {}), **found}) if isinstance(found, dict) else None

    def whole(self, name: str) -> "Section":
        """A section that is no module, with Burrow's defaults, whether it is there or not."""
        return Section({**_GLOBAL_DEFAULTS[name], **self._tree.get(name, {})})

    def profile(self, name: str) -> dict[str, Any]:
        """A client profile with what it names."""
        told = self.section("client-profile", name) or Section({})
        tls, sasl = self.section("tls", told.text("tls")), self.section("sasl", told.text("sasl"))
        return {
            "name": name,
            "client-id": told.text("client-id"),
            "kafka-version": told.text("kafka-version"),
            "tls": tls and {"name": told.text("tls"), "noverify": tls.flag("noverify")} | tls.texts(*_TLS_FILES),
            "sasl": sasl
            and {"name": told.text("sasl"), "handshake-first": sasl.flag("handshake-first")} | sasl.texts("username"),
        }


_TLS_FILES = ("certfile", "keyfile", "cafile")


class Section:
    """One section, asked by the kind of what is wanted."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, key: str) -> str:
        """A text."""
        value = self._values.get(key, "")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def texts(self, *keys: str) -> dict[str, str]:
        """Several texts by their keys."""
        return {key: self.text(key) for key in keys}

    def number(self, key: str) -> int:
        """A whole number; a text that is none, such as ``5s``, is 0."""
        try:
            return int(self._values.get(key, 0))
        except ValueError:
            return 0

    def numbers(self, *keys: str) -> dict[str, int]:
        """Several numbers by their keys."""
        return {key: self.number(key) for key in keys}

    def flag(self, key: str) -> bool:
        """Yes or no."""
        return self.text(key).lower() in _TRUE

    def list(self, key: str) -> list[str] | None:
        """A list; a text is taken apart at its spaces."""
        value = self._values.get(key)
        return value.split() if isinstance(value, str) else value

    def table(self, key: str) -> dict[str, str]:
        """A table of texts."""
        return {name: str(value) for name, value in sorted(self._values.get(key, {}).items())}


def _folded(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): _folded(value) if isinstance(value, dict) else value for key, value in tree.items()}
