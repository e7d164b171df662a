"""Makes the fake Burrow's answers to ``/v3/config``, with their keys in Go's order.

Source: v1.9.5, ``core/internal/httpserver/structs.go``.
"""

from collections.abc import Callable
from typing import Any

from karrot.demo.burrow.toml_config import Section, Viper

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
"""A ``burrow.toml`` with nothing wrong in it."""


def main_config(viper: Viper) -> dict[str, Any]:
    """``/v3/config`` after its request."""
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


def module(viper: Viper, coordinator: str, name: str) -> dict[str, Any] | None:
    """One module's detail, ``None`` if there is none."""
    section = viper.section(coordinator, name)
    return None if section is None else COORDINATORS[coordinator](viper, section)


def cluster_module(viper: Viper, section: Section) -> dict[str, Any]:
    """``[cluster.X]``."""
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
    return _NOTIFIERS[section.text("class-name")](section)


def _common(section: Section, *numbers: str) -> dict[str, Any]:
    return {
        **section.texts("class-name", "group-allowlist"),
        **section.numbers("interval", "threshold", *numbers),
    }


def _message(section: Section) -> dict[str, Any]:
    return {
        **section.texts("template-open", "template-close"),
        "extra": section.table("extras"),
        "send-close": section.flag("send-close"),
    }


def _http(section: Section) -> dict[str, Any]:
    return {
        **_common(section, "timeout", "keepalive"),
        **section.texts("url-open", "url-close", "method-open", "method-close"),
        **_message(section),
        **section.texts("extra-ca", "noverify"),
    }


def _slack(section: Section) -> dict[str, Any]:
    return {
        **_common(section, "timeout", "keepalive"),
        **_message(section),
        **section.texts("channel", "username", "icon-url", "icon-emoji"),
    }


def _email(section: Section) -> dict[str, Any]:
    return {
        **_common(section),
        **_message(section),
        "server": section.text("server"),
        "port": section.number("port"),
        **section.texts("auth-type", "username", "from", "to", "extra-ca", "noverify"),
    }


def _null(section: Section) -> dict[str, Any]:
    return {**_common(section), **_message(section)}


_NOTIFIERS: dict[str, Callable[[Section], dict[str, Any]]] = {
    "http": _http,
    "slack": _slack,
    "email": _email,
    "null": _null,
}
COORDINATORS: dict[str, Callable[[Viper, Section], dict[str, Any]]] = {
    "storage": _storage,
    "evaluator": _evaluator,
    "cluster": cluster_module,
    "consumer": _consumer,
    "notifier": _notifier,
}
