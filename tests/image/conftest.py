"""Fixtures of the container image, built once from the files in git plus files that must not get into the image."""

import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import karrot
from support.image.buildah import BASE, CANARY, ROOT, Buildah, Image, default_cache, missing_requirements
from support.image.runc_container import USER, Container

_HIDDEN = (
    ".env",
    ".git/config",
    "karrot/.env.production",
    "karrot/web/tls.key",
    "karrot-data/events.db",
    "karrot/karrot-data/events.db",
    "requirements/pip.conf",
    "templates/web/tls.pem",
    "id_rsa",
)
"""Paths at which people often leave secrets."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--with-pipeline", action="store_true", help="build and try the target with Spark as well")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures of the tests that passed."""
    for report in terminalreporter.stats.get("passed", ()):
        for _, figure in report.user_properties:
            terminalreporter.line(str(figure))


@pytest.fixture(scope="session")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    """Return buildah with the base image, on a machine that can run a container."""
    _end_if(missing_requirements())
    buildah = Buildah(default_cache())
    buildah.ensure_base()
    _end_if(_refusal(buildah, tmp_path_factory.mktemp("probe")))
    return buildah


def _end_if(lacking: str | None) -> None:
    """Fail the tests if a requirement is missing, or skip them if `IMAGE_MAY_BE_LEFT_OUT` is set."""
    if lacking is None:
        return
    sentence = f"make image cannot do its work here: {lacking}"
    if "IMAGE_MAY_BE_LEFT_OUT" in os.environ:
        pytest.skip(f"LEFT OUT: {sentence}")
    pytest.fail(sentence, pytrace=False)


def _refusal(buildah: Buildah, directory: Path) -> str | None:
    """Return why this machine cannot run a container, if so; a machine in a sandbox may not be allowed to."""
    nothing = {"User": f"{USER}:{USER}", "Entrypoint": ["/bin/true"], "Cmd": [], "Env": [], "WorkingDir": "/"}
    with (
        buildah.mounted(BASE) as root,
        Container(root, nothing, directory / "bundle", directory, {}) as container,
    ):
        return container.said.read_text() or "runc fails" if container.wait(60) else None


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree with a canary at each path that may hold a secret."""
    copy = tmp_path_factory.mktemp("context")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    for name in _HIDDEN:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(f"password = {CANARY}\n")
    return copy


@pytest.fixture(scope="session")
def lent_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the certificates that this machine trusts, with a canary; the build uses them and must not keep them."""
    trusted = ssl.get_default_verify_paths().cafile
    bundle = tmp_path_factory.mktemp("ca") / "ca.pem"
    bundle.write_text(f"{Path(trusted).read_text() if trusted else ''}\n# {CANARY}\n")
    return bundle


@pytest.fixture(scope="session")
def service(buildah: Buildah, context: Path, lent_certificates: Path) -> Iterator[Image]:
    """Build the target for the service."""
    yield from _built("service", buildah, context, lent_certificates)


@pytest.fixture(scope="session")
def pipeline(
    request: pytest.FixtureRequest, buildah: Buildah, context: Path, lent_certificates: Path
) -> Iterator[Image]:
    """Build the target with Java and Spark; it downloads 700 MB, so only on request."""
    if not request.config.getoption("--with-pipeline"):
        pytest.skip('the pipeline\'s image is left out: make image ARGS="--with-pipeline" builds it too')
    yield from _built("pipeline", buildah, context, lent_certificates)


def _built(target: str, buildah: Buildah, context: Path, ca: Path) -> Iterator[Image]:
    tag = f"localhost/karrot-{target}:{os.getpid()}"
    arguments = {"VERSION": karrot.__version__, "REVISION": "0" * 40, "CREATED": "2026-01-02T03:04:05Z"}
    start = time.monotonic()
    buildah.build(context, tag, target=target, arguments=arguments, ca=ca)
    took = time.monotonic() - start
    try:
        with buildah.mounted(tag) as root:
            yield Image(tag, buildah.config(tag), root, buildah, took)
    finally:
        buildah.forget(tag)
