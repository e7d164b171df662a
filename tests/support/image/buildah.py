"""Builds container images with buildah in its own storage, without an image registry.

The base image is a Debian with Python. debootstrap makes it once, which takes a minute, and it is kept in the cache
directory. A release is built on another distribution, but with the same Dockerfile.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

BASE_RELEASE = "bookworm"
BASE = f"localhost/karrot-base:{BASE_RELEASE}"
ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-5f1b0c7e-in-no-layer"
"""The marked text in every place that may hold a secret during the build."""
_PROGRAMS = ("buildah", "debootstrap", "runc")
_PACKAGES = "python3,python3-venv,ca-certificates"


def missing_requirements() -> str | None:
    """Return what this machine lacks to build and run an image, as a sentence, or an empty text."""
    if os.geteuid() != 0:
        return "it needs root: debootstrap and a container without a user namespace do"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"it needs {', '.join(absent)}: apt-get install --no-install-recommends buildah debootstrap runc"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "this machine allows no mount namespace"
    return None


def default_cache() -> Path:
    """Return the directory outside the tree that keeps the base image between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "karrot" / "image"


class Buildah:
    """Images in a directory. A failed command fails the test with buildah's output."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._storage = ["--root", str(cache / "storage"), "--runroot", str(cache / "run")]

    def __call__(self, *arguments: str) -> str:
        """Run one command of buildah; return its output."""
        command = ["buildah", *self._storage, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-8000:]}"
        return done.stdout.strip()

    def ensure_base(self) -> None:
        """Make the base if the cache has none."""
        self._cache.mkdir(parents=True, exist_ok=True)
        if BASE in self("images", "--format", "{{.Name}}:{{.Tag}}").split():
            return
        with tempfile.TemporaryDirectory(dir=self._cache) as directory:
            root = Path(directory) / "base"
            command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", BASE_RELEASE, str(root)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with self._container("scratch") as container:
                self("add", "--quiet", container, str(root), "/")
                self("commit", "--quiet", container, BASE)

    def build(self, context: Path, tag: str, *, target: str, arguments: Mapping[str, str], ca: Path) -> None:
        """Build one target of the Dockerfile; the build gets ``ca`` as a secret."""
        given = {"PYTHON_IMAGE": BASE, **arguments}
        # docker's format, because the OCI format has no HEALTHCHECK.
        self(
            *("bud", "--isolation", "chroot", "--format", "docker", "--pull-never", "--target", target),
            *(f"--build-arg={name}={value}" for name, value in given.items()),
            *(f"--secret=id=ca,src={ca}", "--tag", tag, str(context)),
        )

    def forget(self, image: str) -> None:
        """Remove an image and its build stages. The base stays."""
        self("rmi", "--force", image)
        self("rmi", "--prune", "--force")

    def config(self, image: str) -> dict[str, Any]:
        """Return the image's run configuration in docker's form."""
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]
        return found

    def layers(self, image: str, directory: Path) -> Sequence[Path]:
        """Return all files that a registry would get, unpacked: the layers and their descriptions."""
        self("push", "--quiet", "--disable-compression", image, f"dir:{directory}")
        return [path for path in directory.iterdir() if path.is_file()]

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """Mount the image and yield the directory of its files."""
        with self._container(image) as container:
            yield Path(self("mount", container))

    @contextmanager
    def _container(self, image: str) -> Iterator[str]:
        container = self("from", "--pull-never", image)
        try:
            yield container
        finally:
            self("rm", container)


class Image(NamedTuple):
    """An image with its configuration, its files and its build time."""

    tag: str
    config: dict[str, Any]
    root: Path
    buildah: Buildah
    build_seconds: float
