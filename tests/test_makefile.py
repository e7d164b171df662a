"""The Makefile installs by pip's own configuration, and removes only environments that it made itself."""

import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import pip
import pytest

from support.servers.background_server import serve_in_thread
from support.servers.self_signed_certificate import make_self_signed

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make (Debian: apt-get install make)")


def a_link(tree: Path) -> None:
    (tree / "elsewhere").mkdir()
    (tree / ".venv").symlink_to("elsewhere")


def users_environment(tree: Path) -> None:
    (tree / ".venv" / "bin").mkdir(parents=True)


def make(tree: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    shutil.copy(MAKEFILE, tree)
    return subprocess.run(
        ["make", *arguments], cwd=tree, env=environment or None, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("existing", [a_link, users_environment])
def test_an_environment_that_make_did_not_create_is_refused_and_kept(
    tmp_path: Path, existing: Callable[[Path], None]
) -> None:
    tree = tmp_path / "a clone"
    tree.mkdir()
    existing(tree)
    (tree / ".venv" / "kept").write_text("mine")
    refused = make(tree, ".venv/stamps/environment")
    assert refused.returncode == 2
    assert ".venv was not made by this Makefile: move it away\n" in refused.stderr
    assert (tree / ".venv" / "kept").read_text() == "mine"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python whose new environments share the pip of the tests: to install pip takes most of the time."""
    packages = Path(pip.__file__).parents[1]
    program = tmp_path / "python-with-shared-pip"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" != -m ]; then exec {sys.executable} "$@"; fi\n'
        f'{sys.executable} -m venv --without-pip "$3" &&\n'
        f'exec ln -s {packages}/pip {packages}/pip-*.dist-info "$3"/lib/python3*/site-packages\n'
    )
    program.chmod(0o755)
    return program


def test_an_unfinished_environment_is_made_again(tmp_path: Path, python: Path) -> None:
    (tmp_path / ".venv" / "stamps").mkdir(parents=True)
    (tmp_path / ".venv" / "half").write_text("made")
    made = make(tmp_path, ".venv/stamps/environment", f"PYTHON={python}")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / ".venv" / "bin" / "python").exists()
    assert not (tmp_path / ".venv" / "half").exists()


REQUIREMENTS = sorted(path.stem for path in (MAKEFILE.parent / "requirements").glob("*.txt"))
NOT_OF_THE_MAKEFILE = {"image", "pipeline", "spark-build", "spark-worker"}

BACKEND = """
import pathlib, shutil
def build_editable(directory, config_settings=None, metadata_directory=None):
    return shutil.copy(next(pathlib.Path("requirements").glob("*.whl")), directory).rpartition("/")[2]
"""


def a_wheel(directory: Path, name: str) -> Path:
    """Write a wheel that contains no module."""
    path, facts = directory / f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{facts}/RECORD", f"{facts}/METADATA,,\n{facts}/WHEEL,,\n{facts}/RECORD,,\n")
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree in which each file of requirements pins one package, which only the private index has."""
    tree, index = tmp_path / "a clone", tmp_path / "index" / "simple"
    (tree / "requirements").mkdir(parents=True)
    for each in REQUIREMENTS:
        name = f"for_{each}".replace("-", "_")
        (index / name.replace("_", "-")).mkdir(parents=True)
        wheel = a_wheel(index / name.replace("_", "-"), name)
        hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (tree / "requirements" / f"{each}.txt").write_text(f"{name}==1 --hash=sha256:{hashed}\n")
    a_wheel(tree / "requirements", "karrot_burrow")
    (tree / "backend.py").write_text(BACKEND)
    (tree / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return tree


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose pip.conf alone names the index and the authority of its certificate."""
    (tmp_path / "index").mkdir(exist_ok=True)
    make_self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "made-cert.pem", tmp_path / "made-key.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index")))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serve_in_thread(server) as port:
        configuration = tmp_path / "home" / ".config" / "pip" / "pip.conf"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(
            f"[global]\nindex-url = https://localhost:{port}/simple/\ncert = {tmp_path / 'made-cert.pem'}\n"
        )
        yield tmp_path / "home"


def test_every_package_comes_from_the_index_that_only_pips_configuration_names(
    clone: Path, home: Path, python: Path
) -> None:
    settings = {"HOME": str(home), "PATH": os.environ["PATH"]}
    made = make(clone, ".venv/stamps/dev", f"PYTHON={python}", **settings)
    assert made.returncode == 0, made.stderr
    listed = subprocess.run(
        [clone / ".venv" / "bin" / "python", "-m", "pip", "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    names = {each["name"].replace("_", "-") for each in json.loads(listed.stdout)} - {"pip", "setuptools"}
    assert names == {"for-service", "for-build", "for-dev", "karrot-burrow"}
    command = next(line for line in made.stdout.splitlines() if line.endswith("-r requirements/dev.txt"))
    for each in set(REQUIREMENTS) - NOT_OF_THE_MAKEFILE - {"service", "build", "dev"}:
        planned = make(clone, "-n", f".venv/stamps/{each}", f"PYTHON={python}", **settings)
        assert planned.stdout.splitlines()[0] == command.replace("/dev.txt", f"/{each}.txt")
