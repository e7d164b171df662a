"""Reads a ``burrow.toml`` like viper, Burrow's configuration library, and makes Burrow's answer at ``/v3/config``.

Keys ignore case. A value is converted to the requested type: text, number or flag. A missing value is ``""``, ``0``,
``false`` or a ``null`` list. Sources: v1.9.5, ``core/internal/httpserver/{config,structs}.go`` and each module's
``Configure``.
"""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


class BurrowConfig(NamedTuple):
    """``main`` is the answer of ``/v3/config``. ``modules`` has each module by coordinator and name, in lower case."""

    main: Mapping[str, Any]
    modules: Mapping[str, Mapping[str, Mapping[str, Any]]]


class Viper:
    """The whole configuration."""

    def __init__(self, toml: str) -> None:
        self._tree = _folded(tomllib.loads(toml))

    def names(self, coordinator: str) -> list[str]:
        """Return the names of a coordinator's modules."""
        return list(self._tree.get(coordinator, {}))

    def section(self, *path: str) -> "Section | None":
        """Return one section with Burrow's defaults, or ``None`` if there is none."""
        found: Any = self._tree
        for key in path:
            found = found.get(key.lower()) if isinstance(found, dict) else None
        return Section({**_DEFAULTS.get(path[0], {}), **found}) if isinstance(found, dict) else None

    def whole(self, name: str) -> "Section":
        """Return a section that is not a module, with Burrow's defaults, even if the file lacks it."""
        return Section({**_GLOBAL_DEFAULTS[name], **self._tree.get(name, {})})

    def profile(self, name: str) -> dict[str, Any]:
        """Return a client profile with the TLS and SASL profiles that it names."""
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
    """One section, with a method for each type of value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, key: str) -> str:
        """Return a text."""
        value = self._values.get(key, "")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def texts(self, *keys: str) -> dict[str, str]:
        """Return several texts by their keys."""
        return {key: self.text(key) for key in keys}

    def number(self, key: str) -> int:
        """Return a whole number; an invalid text, such as ``5s``, is 0."""
        try:
            return int(self._values.get(key, 0))
        except ValueError:
            return 0

    def numbers(self, *keys: str) -> dict[str, int]:
        """Return several numbers by their keys."""
        return {key: self.number(key) for key in keys}

    def flag(self, key: str) -> bool:
        """Return true or false."""
        return self.text(key).lower() in _TRUE

    def list(self, key: str) -> list[str] | None:
        """Return a list; a text is split at its spaces."""
        value = self._values.get(key)
        return value.split() if isinstance(value, str) else value

    def table(self, key: str) -> dict[str, str]:
        """Return a table of texts."""
        return {name: str(value) for name, value in sorted(self._values.get(key, {}).items())}


def _folded(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): _folded(value) if isinstance(value, dict) else value for key, value in tree.items()}


EXAMPLE = """
[general]
pidfile = "/var/run/burrow.pid"

[zookeeper]
servers = ["zookeeper:2181"]
root-path = "/burrow"

[client-profile.karrot]
client-id = "burrow"
kafka-version = "3.6.0"

[cluster.prod]
class-name = "kafka"
servers = ["kafka:9092"]
client-profile = "karrot"
offset-refresh = 1

[consumer.prod]
class-name = "kafka"
cluster = "prod"
servers = ["kafka:9092"]
client-profile = "karrot"
group-denylist = "^console-consumer-"

[httpserver.default]
address = ":8000"

[storage.default]
class-name = "inmemory"

[evaluator.default]
class-name = "caching"

[notifier.karrot]
class-name = "http"
url-open = "http://karrot:5000/burrow"
url-close = "http://karrot:5000/burrow"
method-open = "POST"
method-close = "POST"
template-open = "/etc/burrow/karrot.tmpl"
template-close = "/etc/burrow/karrot.tmpl"
interval = 30
send-interval = 20
threshold = 1
timeout = 5
send-close = true
"""
"""A ``burrow.toml`` without errors."""


def configured(toml: str) -> BurrowConfig:
    """Return Burrow's answer about a ``burrow.toml``."""
    viper = Viper(toml)
    modules = {
        coordinator: {
            name: detail for name in viper.names(coordinator) if (detail := module_config(viper, coordinator, name))
        }
        for coordinator in COORDINATORS
    }
    return BurrowConfig(main_config(viper), modules)


def main_config(viper: Viper) -> dict[str, Any]:
    """Return the part of the answer at ``/v3/config`` after ``request``."""
    general, logging, zookeeper = viper.whole("general"), viper.whole("logging"), viper.whole("zookeeper")
    return {
        "general": general.texts("pidfile", "stdout-logfile", "access-control-allow-origin"),
        "logging": {
            "filename": logging.text("filename"),
            "max-size": logging.number("maxsize"),
            "max-backups": logging.number("maxbackups"),
            "max-age": logging.number("maxage"),
            "use-local-time": logging.flag("use-localtime"),
            "use-compression": logging.flag("use-compression"),
            "level": logging.text("level"),
        },
        "zookeeper": {
            "servers": zookeeper.list("servers"),
            "timeout": zookeeper.number("timeout"),
            "root-path": zookeeper.text("root-path"),
        },
        "httpserver": {name: _server(viper, name) for name in sorted(viper.names("httpserver"))},
    }


def module_config(viper: Viper, coordinator: str, name: str) -> dict[str, Any] | None:
    """Return the details of one module, or ``None`` if there is none."""
    section = viper.section(coordinator, name)
    return None if section is None else COORDINATORS[coordinator](viper, section)


def _cluster(viper: Viper, section: Section) -> dict[str, Any]:
    """Return the details of ``[cluster.X]``."""
    return {
        "class-name": section.text("class-name"),
        "servers": section.list("servers"),
        "client-profile": viper.profile(section.text("client-profile")),
        **section.numbers("topic-refresh", "offset-refresh"),
    }


def _server(viper: Viper, name: str) -> dict[str, Any]:
    section = viper.section("httpserver", name) or Section({})
    return {**section.texts("address", "tls"), "timeout": section.number("timeout")}


def _storage(_: Viper, section: Section) -> dict[str, Any]:
    return {
        "class-name": section.text("class-name"),
        **section.numbers("intervals", "min-distance"),
        "group-allowlist": section.text("group-allowlist"),
        "expire-group": section.number("expire-group"),
    }


def _evaluator(_: Viper, section: Section) -> dict[str, Any]:
    return {"class-name": section.text("class-name"), "expire-cache": section.number("expire-cache")}


def _consumer(viper: Viper, section: Section) -> dict[str, Any]:
    return {
        **section.texts("class-name", "cluster"),
        "servers": section.list("servers"),
        **section.texts("group-allowlist", "zookeeper-path"),
        "zookeeper-timeout": section.number("zookeeper-timeout"),
        "client-profile": viper.profile(section.text("client-profile")),
        "offsets-topic": section.text("offsets-topic"),
        "start-latest": section.flag("start-latest"),
    }


def _notifier(_: Viper, section: Section) -> dict[str, Any]:
    """Return the details of a ``[notifier.X]`` of the class http. No test asks for one of another class."""
    return {
        **section.texts("class-name", "group-allowlist"),
        **section.numbers("interval", "threshold", "timeout", "keepalive"),
        **section.texts("url-open", "url-close", "method-open", "method-close", "template-open", "template-close"),
        "extra": section.table("extras"),
        "send-close": section.flag("send-close"),
        **section.texts("extra-ca", "noverify"),
    }


COORDINATORS: dict[str, Callable[[Viper, Section], dict[str, Any]]] = {
    "storage": _storage,
    "evaluator": _evaluator,
    "cluster": _cluster,
    "consumer": _consumer,
    "notifier": _notifier,
}
