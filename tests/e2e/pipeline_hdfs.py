"""Starts a real HDFS: a NameNode and a DataNode."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import urllib3

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.java import java
from e2e.stack.processes import Server, Servers, wait_until
from support.service.free_ports import free_port

_ROOT = "/lag"
_PACKAGE = "org.apache.hadoop.hdfs.server"
_RETRIES = urllib3.Retry(total=None, connect=0, read=0, redirect=1)
"""The NameNode redirects to the DataNode."""


class Hdfs(NamedTuple):
    """A directory on a running HDFS, which this process reads by WebHDFS."""

    url: str
    web: str
    http: urllib3.PoolManager
    data_node: Server
    environment: Mapping[str, str] = MappingProxyType({})
    spark_conf: Mapping[str, str] = MappingProxyType({"spark.hadoop.dfs.replication": "1"})
    delta_options: Mapping[str, str] = MappingProxyType({})

    def write(self, key: str, content: bytes) -> None:
        """Write a file."""
        answer = self._ask("PUT", key, "CREATE&overwrite=true&permission=644", content)
        assert answer.status == 201, answer.data

    def listed(self, prefix: str) -> dict[str, str]:
        """The files below a prefix. Their ids change when they are replaced."""
        directory = prefix.rstrip("/")
        found = self._ask("GET", directory, "LISTSTATUS")
        if found.status == 404:
            return {}
        files: dict[str, str] = {}
        entries: list[dict[str, Any]] = found.json()["FileStatuses"]["FileStatus"]
        for each in entries:
            key = f"{directory}/{each['pathSuffix']}"
            files |= self.listed(key) if each["type"] == "DIRECTORY" else {key: f"{each['fileId']} {each['length']}"}
        return files

    def read(self, key: str) -> bytes | None:
        """The content of a file; ``None`` if it is gone."""
        answer = self._ask("GET", key, "OPEN")
        assert answer.status in (200, 404), answer.data
        return answer.data if answer.status == 200 else None

    def _ask(self, method: str, key: str, operation: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
        url = f"{self.web}/webhdfs/v1{_ROOT}/{key}?op={operation}"
        return self.http.request(method, url, body=body, retries=_RETRIES)


@contextmanager
def hdfs(directory: Path) -> Iterator[Hdfs]:
    """Start both servers; their data and logs are below ``directory``."""
    jars, name, web = Downloads(default_cache()).hdfs(), free_port(), free_port()
    url = f"hdfs://127.0.0.1:{name}"
    settings = {
        "fs.defaultFS": url,
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.name.dir": (directory / "name").as_uri(),
        "dfs.namenode.http-address": f"127.0.0.1:{web}",
        "dfs.datanode.data.dir": (directory / "data").as_uri(),
        **{f"dfs.datanode.{kind}": "127.0.0.1:0" for kind in ("address", "http.address", "ipc.address")},
        "dfs.datanode.hostname": "127.0.0.1",
    }
    options = [part for pair in settings.items() for part in ("-D", "=".join(pair))]

    def command(server: str, *more: str) -> list[str | Path]:
        return java(jars, 256, f"{_PACKAGE}.{server}", *options, *more)

    done = subprocess.run(command("namenode.NameNode", "-format", "-nonInteractive"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    with Servers(directory / "logs") as servers, urllib3.PoolManager() as http:
        name_node = servers.start("namenode", command("namenode.NameNode"))
        data_node = servers.start("datanode", command("datanode.DataNode"))
        started = Hdfs(f"{url}{_ROOT}", f"http://127.0.0.1:{web}", http, data_node)
        wait_until(lambda: _is_writable(started), [name_node, data_node], what="HDFS takes a file")
        yield started


def _is_writable(store: Hdfs) -> bool:
    try:
        return store._ask("PUT", "started", "CREATE&overwrite=true", b"yes").status == 201
    except urllib3.exceptions.HTTPError:
        return False
