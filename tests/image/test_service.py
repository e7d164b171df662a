"""The image of the service runs as in a restricted cluster."""

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from packaging.markers import Marker

import karrot
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.postgres_server import PASSWORD, running_postgres
from support.image.buildah import BASE, CANARY, ROOT, Image
from support.image.runc_container import USER, Container
from support.service.free_ports import free_port
from support.waiting import wait_for

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]

_MEGABYTE = 1_000_000
_INSTALLERS = {"pip", "pip3", "uv", "hatchling", "wheel", "easy_install"}
_COMPILERS = {"cc", "gcc", "g++", "c++", "clang", "make", "ld", "as", "rustc", "go"}
_WARN = recorded_body("karrot_v1.9.5_warn.json")
_BUDGET = 120 * _MEGABYTE


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a volume that belongs to the image's user, as Docker and ``fsGroup`` make one."""
    volume = tmp_path / "data"
    volume.mkdir(mode=0o750)
    os.chown(volume, USER, USER)
    return volume


@pytest.fixture
def start(service: Image, data: Path, tmp_path: Path) -> Iterator[Callable[..., "Running"]]:
    """Yield a function that starts a container with the same volume, under a given name, with more settings."""
    port = free_port()
    started: list[Running] = []

    def start(name: str, **settings: str) -> Running:
        environment = {"KARROT_BIND": f"127.0.0.1:{port}", **settings}
        container = Container(service.root, service.config, tmp_path / name, data, environment)
        started.append(Running(container.__enter__(), port))
        started[-1].await_alive()
        return started[-1]

    yield start
    for each in started:
        each.container.__exit__(None, None, None)


class Running:
    """A container that answers on a local port."""

    def __init__(self, container: Container, port: int) -> None:
        self.container = container
        self._address = f"http://127.0.0.1:{port}"

    def await_alive(self) -> None:
        wait_for(lambda: self._is_alive() or not self.container.is_running, 60)
        assert self.container.is_running, self.container.said.read_text()

    def _is_alive(self) -> bool:
        try:
            return '"alive"' in self.get("/healthz")
        except URLError:
            return False

    def get(self, path: str) -> str:
        with urlopen(self._address + path, timeout=5) as answer:
            return str(answer.read().decode())

    def post(self, body: bytes) -> int:
        request = Request(f"{self._address}/burrow", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=5) as answer:
            return int(answer.status)


def test_the_image_declares_its_user_port_and_command(service: Image) -> None:
    config = service.config
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["karrot"]
    assert config["Cmd"] == ["serve"]
    assert config["WorkingDir"] == "/data"
    assert config["Volumes"] == {"/data": {}}
    assert config["ExposedPorts"] == {"5000/tcp": {}}
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "karrot", "healthcheck"]
    assert "KARROT_DATA_DIR=/data" in config["Env"]
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): text for name, text in config["Labels"].items() if name.startswith(prefix)}
    assert labels["title"] == "Karrot"
    assert (labels["version"], labels["revision"]) == (karrot.__version__, "0" * 40)
    assert (labels["created"], labels["base.name"]) == ("2026-01-02T03:04:05Z", BASE)
    assert labels["licenses"] == "Apache-2.0"
    assert set(labels) >= {"description", "source", "url"}


def test_the_image_adds_few_megabytes_to_its_base_and_no_secret(
    service: Image, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    layers = service.buildah.layers(service.tag, tmp_path / "service")
    base = {path.name for path in service.buildah.layers(BASE, tmp_path / "base")}
    for path in layers:
        assert CANARY.encode() not in path.read_bytes(), path
    added = sum(path.stat().st_size for path in layers if path.name not in base)
    record_property("figures", f"{added / _MEGABYTE:.0f} MB above the base, built in {service.build_seconds:.0f} s")
    assert 10 * _MEGABYTE < added < _BUDGET


def test_the_search_finds_a_canary_in_the_context(context: Path, lent_certificates: Path) -> None:
    assert CANARY in lent_certificates.read_text()
    assert sum(CANARY.encode() in path.read_bytes() for path in context.rglob("*") if path.is_file()) > 5


def test_the_image_has_no_installer_and_no_compiler(service: Image) -> None:
    programs = {path.name for path in _files(service.root) if os.access(path, os.X_OK)}
    assert programs & (_INSTALLERS | _COMPILERS) == set()
    packages = {path.name.split("-")[0] for path in service.root.rglob("*.dist-info")}
    assert packages & {"pip", "setuptools", "uv", "hatchling", "pyspark", "duckdb"} == set()
    assert {"karrot_burrow", "gunicorn", "confluent_kafka", "psycopg_binary"} <= packages
    assert not list(service.root.rglob("ensurepip"))


def test_the_images_user_owns_only_the_data_directory(service: Image) -> None:
    owned = [path for path in service.root.rglob("*") if path.lstat().st_uid == USER]
    assert [str(path.relative_to(service.root)) for path in owned] == ["data"]
    ours = service.root / "opt" / "karrot"
    assert not [path for path in _files(ours) if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)]
    assert list(ours.rglob("__pycache__/wiring.*.pyc")), "each start would compile modules that it cannot store"


def test_the_image_works_on_a_read_only_root_and_ends_cleanly(start: Callable[..., Running], data: Path) -> None:
    first = start("first")
    inside = first.container.execute
    assert inside("id", "-u").stdout == f"{USER}\n"
    assert "CapEff:\t0000000000000000" in inside("cat", "/proc/self/status").stdout
    refused = inside("touch", *(f"{place}/written" for place in ("", "/tmp", "/opt/karrot", "/var/tmp", "/etc"))).stderr
    assert refused.count("Read-only file system") == 5, refused
    assert json.loads(inside("karrot", "healthcheck").stdout) == {"status": "alive"}
    assert inside("karrot", "version").stdout.split()[-1] == karrot.__version__
    assert inside("python", "-c", "import confluent_kafka, apsw, boto3").returncode == 0
    assert inside("python", "-m", "pip").returncode != 0
    assert first.post(_WARN) == 202
    lag = re.search(r"^karrot_consumer_lag\{.*\} .*$", first.get("/metrics"), re.MULTILINE)
    assert lag is not None
    first.container.signal(signal.SIGTERM)
    assert first.container.wait(30) == 0
    assert {path.stat().st_uid for path in data.iterdir()} == {USER}

    second = start("second")
    assert lag[0] in second.get("/metrics"), "acknowledged events must be there after a restart"
    second.container.signal(signal.SIGTERM)
    assert second.container.wait(30) == 0


def test_the_image_stores_events_in_postgresql_and_writes_no_file(start: Callable[..., Running], data: Path) -> None:
    password = data / "password"
    password.write_text(PASSWORD)
    data.chmod(0o555)
    with running_postgres() as database:
        settings = {"KARROT_EVENT_LOG": database.url(), "KARROT_EVENT_LOG_PASSWORD_FILE": "/data/password"}
        first = start("first", **settings)
        assert first.post(_WARN) == 202
        first.container.signal(signal.SIGTERM)
        assert first.container.wait(30) == 0
        second = start("second", **settings)
        assert "karrot_consumer_lag{" in second.get("/metrics")
    assert list(data.iterdir()) == [password]


def test_the_bill_of_materials_names_the_installed_packages(service: Image, tmp_path: Path) -> None:
    [site] = service.root.glob("opt/karrot/lib/python3*/site-packages")
    python = tmp_path / "python"  # the image's own Python cannot run here; it is needed only for its search path
    python.write_text(f"#!/bin/sh\necho '{json.dumps([str(site)])}'\n")
    python.chmod(0o755)
    bill = ROOT / "dist" / "karrot-image.cdx.json"
    bill.parent.mkdir(exist_ok=True)
    command = [ROOT / ".venv/bin/cyclonedx-py", "environment", "--output-reproducible", "-o", bill, python]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    named = {
        part["name"].lower().replace("_", "-"): part["version"] for part in json.loads(bill.read_text())["components"]
    }
    assert named == _pinned(site.parent.name.removeprefix("python")) | {"karrot-burrow": karrot.__version__}


def _pinned(python: str) -> dict[str, str]:
    """Return the version of each package in the image's requirements, without those for other systems and Pythons."""
    text = (ROOT / "requirements" / "image.txt").read_text()
    found = re.findall(r"^([a-z0-9-]+)==(\S+)(?: ; (.*))? \\$", text, re.MULTILINE)
    here = {"python_full_version": f"{python}.0", "python_version": python}
    return {name: version for name, version, marker in found if not marker or Marker(marker).evaluate(here)}


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
