"""A ZooKeeper server; Burrow sends no notifications without one."""

import socket
from pathlib import Path

from e2e.stack.java import java
from e2e.stack.processes import Server, Servers, wait_until

_CONFIG = """\
tickTime=1000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,dump
"""


class ZooKeeper:
    """One server; ``address`` is its address for clients."""

    def __init__(self, servers: Servers, jars: Path, port: int) -> None:
        self._servers = servers
        self._jars = jars
        self._port = port
        self.address = f"127.0.0.1:{port}"
        self.server: Server

    def start(self) -> None:
        directory = self._servers.directory
        config = directory / "zoo.cfg"
        config.write_text(_CONFIG.format(data=directory / "zookeeper", port=self._port))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.server = self._servers.start("zookeeper", java(self._jars, 96, main, config))

    def wait(self) -> None:
        wait_until(lambda: self.ask("ruok") == "imok", [self.server], what="ZooKeeper says that it is well")

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter command, or ``""`` if there is none.

        Commands are ``ruok``, ``srvr``, or ``dump`` for the sessions and their nodes.
        """
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
