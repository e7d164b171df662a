"""A Prometheus server to which tests add scrape targets while it runs."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from e2e.stack.processes import NotStarted, Server, Servers, wait_until
from support.prometheus.prometheus_server import PrometheusApi

_CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
  - job_name: e2e
    file_sd_configs: [{{files: ["{targets}/*.json"], refresh_interval: 1s}}]
"""


class Prometheus(PrometheusApi):
    """The server at ``url``, which scrapes every second; ``promtool`` is in the same directory."""

    def __init__(self, servers: Servers, binary: Path, port: int) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self._servers = servers
        self._binary = binary
        self.promtool = binary.with_name("promtool")
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._targets = servers.directory / "prometheus-targets"
        self.server: Server

    def start(self) -> None:
        self._targets.mkdir()
        config = self._servers.directory / "prometheus.yml"
        config.write_text(_CONFIG.format(targets=self._targets))
        self._check(config)
        options = {
            "config.file": config,
            "storage.tsdb.path": self._servers.directory / "prometheus",
            "web.listen-address": f"127.0.0.1:{self._port}",
            "log.level": "warn",
        }
        command = [str(self._binary), *(f"--{name}={value}" for name, value in options.items())]
        self.server = self._servers.start("prometheus", command)

    def wait(self) -> None:
        wait_until(self._answers, [self.server], what="Prometheus answers")

    @contextmanager
    def scraping(self, job: str, port: int) -> Iterator[None]:
        """Scrape ``/metrics`` on a local port from now on, under that job's name; the first scrape must succeed."""
        self.scrape(job, port)
        try:
            up = f'up{{job="{job}",instance="127.0.0.1:{port}"}}'
            wait_until(lambda: self.number(up) == 1, [self.server], what=f"{up} is 1")
            yield
        finally:
            self._file(job, port).unlink()

    def scrape(self, job: str, port: int) -> None:
        """Scrape like `scraping`, but to the end of the run and whether or not a server answers there."""
        half = self._file(job, port).with_suffix(".half")
        half.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"job": job}}]))
        half.rename(self._file(job, port))

    def _file(self, job: str, port: int) -> Path:
        return self._targets / f"{job}-{port}.json"

    def _check(self, config: Path) -> None:
        checked = subprocess.run(
            [self.promtool, "check", "config", config], capture_output=True, text=True, check=False
        )
        if checked.returncode:
            raise NotStarted(f"promtool does not accept {config}: {checked.stdout}{checked.stderr}")

    def _answers(self) -> bool:
        try:
            return self.number("vector(1)") == 1
        except (URLError, ConnectionError):
            return False
