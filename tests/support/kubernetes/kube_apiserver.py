"""Builds and runs a real kube-apiserver with its etcd; the server stores objects but never runs a pod.

``python -m support.kubernetes.kube_apiserver build`` compiles the server from the Go modules that
``tests/chart/kubeapi`` pins (some six minutes of two cores) and fetches Debian's etcd. Both
are kept outside the tree. `is_built` returns whether they are there.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

from e2e.stack.downloads import default_cache
from e2e.stack.processes import Servers, wait_until
from support.service.free_ports import free_ports

VERSION = "1.36.3"
_MODULE = Path(__file__).resolve().parents[2] / "chart" / "kubeapi"
_PACKAGE = "k8s.io/kubernetes/cmd/kube-apiserver"
_STAMP = "k8s.io/component-base/version"
_TOKEN = "token"


class Binaries(NamedTuple):
    """The paths of the two programs."""

    apiserver: Path
    etcd: Path


def binaries() -> Binaries:
    """Return ``KUBE_APISERVER_BIN`` and ``ETCD_BIN``, programs on the ``PATH``, or those in the cache for the pins."""
    pins = zlib.crc32((_MODULE / "go.sum").read_bytes())
    apiserver = os.environ.get("KUBE_APISERVER_BIN") or shutil.which("kube-apiserver")
    etcd = os.environ.get("ETCD_BIN") or shutil.which("etcd")
    return Binaries(
        Path(apiserver or default_cache() / f"kube-apiserver-{VERSION}-{pins:08x}" / "kube-apiserver"),
        Path(etcd or default_cache() / "etcd" / "usr" / "bin" / "etcd"),
    )


def is_built() -> bool:
    """Return whether both programs exist."""
    return all(program.exists() for program in binaries())


def build() -> None:
    """Build the missing programs. Only a complete program gets its name in the cache."""
    wanted = binaries()
    if not wanted.etcd.exists():
        directory = _fresh(wanted.etcd.parents[2].with_name("etcd.unfinished"))
        subprocess.run(["apt-get", "-qq", "download", "etcd-server"], cwd=directory, check=True)
        [package] = directory.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, directory], check=True)
        directory.rename(wanted.etcd.parents[2])
    if not wanted.apiserver.exists():
        directory = _fresh(wanted.apiserver.parent.with_name("kube-apiserver.unfinished"))
        major, minor, _ = VERSION.split(".")
        told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
        flags = " ".join(["-s", "-w", *(f"-X {_STAMP}.{name}={value}" for name, value in told.items())])
        command = ["go", "build", "-trimpath", f"-ldflags={flags}", "-o", f"{directory}/kube-apiserver", _PACKAGE]
        subprocess.run(command, cwd=_MODULE, check=True)
        directory.rename(wanted.apiserver.parent)


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


class ApiServer:
    """A server on a local ``port``, at ``url``; ``kubeconfig`` is the client file for it."""

    def __init__(self, port: int, directory: Path) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig = directory / "kubeconfig"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """Send a GET, or with a body a POST or another method; raises ``HTTPError``."""
        data = json.dumps(body).encode() if body else None
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        own = ssl._create_unverified_context()  # its certificate is self-signed
        with urlopen(Request(self.url + path, data, headers, method=method), context=own, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def is_ready(self) -> bool:
        try:
            return bool(self.ask("/readyz") == "ok")
        except (HTTPError, URLError, OSError):
            return False

    def knows(self, crd: dict[str, Any]) -> bool:
        """Return whether the server can store objects of a custom kind yet."""
        group, names = crd["spec"]["group"], crd["spec"]["names"]
        try:
            listed = self.ask(f"/apis/{group}/v1")["resources"]
        except HTTPError:
            return False
        return any(each["name"] == names["plural"] for each in listed)


@contextmanager
def run_apiserver(directory: Path) -> Iterator[ApiServer]:
    """Run both servers, with an empty store, until the end of the block."""
    programs = binaries()
    store, peers, port = free_ports(3)
    key = directory / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (directory / "tokens.csv").write_text(f"{_TOKEN},admin,1,system:masters\n", encoding="utf-8")
    with Servers(directory) as servers:
        etcd = {
            "data-dir": directory / "etcd",
            "listen-client-urls": f"http://127.0.0.1:{store}",
            "advertise-client-urls": f"http://127.0.0.1:{store}",
            "listen-peer-urls": f"http://127.0.0.1:{peers}",
        }
        options = {
            "etcd-servers": f"http://127.0.0.1:{store}",
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": directory / "certificates",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "token-auth-file": directory / "tokens.csv",
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",
        }
        started = [
            servers.start("etcd", [programs.etcd, "--unsafe-no-fsync", *_arguments(etcd)]),
            servers.start("kube-apiserver", [programs.apiserver, *_arguments(options)]),
        ]
        api = ApiServer(port, directory)
        wait_until(api.is_ready, started, what="the API server is ready")
        yield api


def _arguments(options: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("python -m support.kubernetes.kube_apiserver build")
    build()
