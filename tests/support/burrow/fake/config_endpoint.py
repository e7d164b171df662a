"""Provides the configuration that the fake Burrow shows under ``/v3/config``, as recorded from a real Burrow.

Source: v1.9.5, ``core/internal/httpserver/structs.go``.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class BurrowConfig(NamedTuple):
    """``main`` is the answer of ``/v3/config``. ``modules`` has each module by coordinator and name, in lower case."""

    main: Mapping[str, Any]
    modules: Mapping[str, Mapping[str, Mapping[str, Any]]]


_PROFILE: Final = {"name": "karrot", "client-id": "burrow", "kafka-version": "3.6.0", "tls": None, "sasl": None}
_URL: Final = "http://karrot:5000/burrow"
_TEMPLATE: Final = "/etc/burrow/karrot.tmpl"

EXAMPLE: Final = BurrowConfig(
    main={
        "general": {"pidfile": "/var/run/burrow.pid", "stdout-logfile": "", "access-control-allow-origin": ""},
        "logging": {
            "filename": "",
            "max-size": 100,
            "max-backups": 10,
            "max-age": 30,
            "use-local-time": False,
            "use-compression": False,
            "level": "info",
        },
        "zookeeper": {"servers": ["zookeeper:2181"], "timeout": 6, "root-path": "/burrow"},
        "httpserver": {"default": {"address": ":8000", "tls": "", "timeout": 300}},
    },
    modules={
        "storage": {
            "default": {
                "class-name": "inmemory",
                "intervals": 10,
                "min-distance": 0,
                "group-allowlist": "",
                "expire-group": 604_800,
            }
        },
        "evaluator": {"default": {"class-name": "caching", "expire-cache": 10}},
        "cluster": {
            "prod": {
                "class-name": "kafka",
                "servers": ["kafka:9092"],
                "client-profile": _PROFILE,
                "topic-refresh": 60,
                "offset-refresh": 1,
            }
        },
        "consumer": {
            "prod": {
                "class-name": "kafka",
                "cluster": "prod",
                "servers": ["kafka:9092"],
                "group-allowlist": "",
                "zookeeper-path": "",
                "zookeeper-timeout": 0,
                "client-profile": _PROFILE,
                "offsets-topic": "__consumer_offsets",
                "start-latest": False,
            }
        },
        "notifier": {
            "karrot": {
                "class-name": "http",
                "group-allowlist": "",
                "interval": 30,
                "threshold": 1,
                "timeout": 5,
                "keepalive": 300,
                "url-open": _URL,
                "url-close": _URL,
                "method-open": "POST",
                "method-close": "POST",
                "template-open": _TEMPLATE,
                "template-close": _TEMPLATE,
                "extra": {},
                "send-close": True,
                "extra-ca": "",
                "noverify": "",
            }
        },
    },
)
"""A configuration without mistakes."""
