"""The real Burrow, if it is installed. No package registry has it, so it is not downloaded."""

import os
import shutil
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers, wait_until
from e2e.stack.zookeeper import ZooKeeper
from support.service.free_ports import free_ports

NO_BURROW = (
    "needs the real Burrow, on the PATH or named by BURROW_BIN: "
    "`go install github.com/linkedin/Burrow@v1.9.5` puts one into ~/go/bin"
)
# The times are short on purpose: with Burrow's defaults a test waits a minute for a new topic.
_CONFIG = """\
[general]
pidfile = "{directory}/burrow.pid"
[logging]
level = "info"
[zookeeper]
servers = ["{zookeeper}"]
timeout = 6
root-path = "/burrow"
[client-profile.e2e]
client-id = "burrow"
kafka-version = "3.6.0"
[cluster.{cluster}]
class-name = "kafka"
servers = [{brokers}]
client-profile = "e2e"
topic-refresh = 5
offset-refresh = {offset_refresh}
[consumer.{cluster}]
class-name = "kafka"
cluster = "{cluster}"
servers = [{brokers}]
client-profile = "e2e"
group-allowlist = "{group_allowlist}"
start-latest = false
[httpserver.default]
address = "127.0.0.1:{port}"
[storage.default]
class-name = "inmemory"
intervals = 10
min-distance = 1
expire-group = 604800
[evaluator.default]
class-name = "caching"
expire-cache = 1
"""
_NOTIFIER = """\
[notifier.karrot]
class-name = "http"
url-open = "{url}"
url-close = "{url}"
method-open = "POST"
method-close = "POST"
template-open = "{template}"
template-close = "{template}"
interval = 10
threshold = 1
timeout = 5
send-close = true
group-allowlist = ".*"
"""
_TEMPLATE = '{\n  "Event": {{ jsonencoder . }}\n}\n'


def burrow_binary() -> str | None:
    """Return ``BURROW_BIN``, or the Burrow on the ``PATH``."""
    return os.environ.get("BURROW_BIN") or shutil.which("Burrow") or shutil.which("burrow")


def karrot_notifier(url: str, directory: Path, text: str = _TEMPLATE) -> str:
    """Return a section that posts every group's verdict to the URL every 10 seconds.

    Its template is written into the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    template = directory / "karrot.tmpl"
    template.write_text(text)
    return _NOTIFIER.format(url=url, template=template)


class Burrow:
    """One Burrow, which names the Kafka cluster ``cluster``; ``url`` is the address of its REST API and metrics.

    With notifiers it posts nothing in its first 60 seconds. If several Burrows share one ZooKeeper, only one posts.
    """

    def __init__(
        self,
        servers: Servers,
        binary: str,
        kafka: Kafka,
        zookeeper: ZooKeeper,
        *,
        name: str = "burrow",
        cluster: str = "e2e",
        notifiers: str = "",
        offset_refresh: int = 1,
        group_allowlist: str = ".*",
    ) -> None:
        self._servers = servers
        self._binary = binary
        self.name = name
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.directory = servers.directory / name
        self._config = notifiers + _CONFIG.format(
            directory=self.directory,
            zookeeper=zookeeper.address,
            cluster=cluster,
            brokers=", ".join(f'"{each}"' for each in kafka.addresses),
            port=self.port,
            offset_refresh=offset_refresh,
            group_allowlist=group_allowlist,
        )
        self.server: Server

    def start(self) -> None:
        """Start Burrow, and return when it reports that it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "burrow.toml").write_text(self._config)
        self.server = self._servers.start(self.name, [self._binary, "-config-dir", self.directory])
        wait_until(self.ready, [self.server], what=f"{self.name} is ready")

    def ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/burrow/admin/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False
