"""Runs a real Prometheus that scrapes one service, and queries it."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from support.service.free_ports import free_port
from support.waiting import wait_for

_CONFIG = """
global: {evaluation_interval: 1s}
rule_files: [rules-*.yml]
scrape_configs:
  - job_name: karrot
    scrape_interval: %ds
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def prometheus_binary() -> str | None:
    """Return the path in ``PROMETHEUS_BIN``, or the program on the ``PATH``."""
    return os.environ.get("PROMETHEUS_BIN") or shutil.which("prometheus")


def promql_string(text: str) -> str:
    """Return a text as a quoted PromQL string."""
    escapes = "".join(f"\\U{ord(character):08x}" for character in text)
    return f'"{escapes}"'


class PrometheusApi:
    """A client for the Prometheus at ``address`` (host and port)."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query: each has ``metric`` and ``value``."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def samples(self, selector: str, back: str) -> list[tuple[float, float]]:
        """Return the scraped samples of one series: seconds since 1970 and value, the oldest first."""
        found = self.query(f"{selector}[{back}]")
        assert len(found) == 1, found
        return [(float(at), float(value)) for at, value in found[0]["values"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the firing alerts: each has ``labels`` and ``annotations``."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return [each for each in found if each["state"] == "firing"]

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its ``health``, and ``lastError`` if that is not ``ok``."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def label_values(self, label: str) -> set[str]:
        """Return every value of a label."""
        return set(self._get(f"label/{label}/values"))

    def number(self, expression: str) -> float | None:
        """Return the value of a query that gives one sample."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def _get(self, path: str, **arguments: str) -> Any:
        with urlopen(f"http://{self._address}/api/v1/{path}", urlencode(arguments).encode() or None, 30) as answer:
            return json.load(answer)["data"]


class Prometheus(PrometheusApi):
    """A Prometheus server process; its data, its rules and its output are in ``directory``.

    ``jobs`` are more items of ``scrape_configs``, in YAML.
    """

    def __init__(
        self,
        binary: str,
        directory: Path,
        target_port: int,
        *,
        interval_s: int = 1,
        rules: Sequence[str] = (),
        jobs: str = "",
    ) -> None:
        super().__init__(f"127.0.0.1:{free_port()}")
        self._binary = binary
        self._directory = directory
        self._config = _CONFIG % (interval_s, target_port) + indent(jobs, "  ")
        self._rules = rules
        self.said = directory / "prometheus.log"

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "prometheus.yml"
        config.write_text(self._config)
        for number, text in enumerate(self._rules):
            (self._directory / f"rules-{number}.yml").write_text(text, encoding="utf-8")
        options = {
            "config.file": config,
            "storage.tsdb.path": self._directory / "tsdb",
            "web.listen-address": self._address,
        }
        command = [self._binary, *(f"--{name}={value}" for name, value in options.items())]
        with self.said.open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        wait_for(self._scrapes, 60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _scrapes(self) -> bool:
        assert self._process.poll() is None, self.said.read_text()
        try:
            return self.number("min(up)") == 1
        except (URLError, ConnectionError):
            return False
