"""Downloads the parts of the stack once, with the ordinary clients, into a cache outside the tree."""

import fcntl
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from e2e.stack.processes import NotStarted

_POMS = Path(__file__).with_name("maven")
_SPARK_POMS = Path(__file__).resolve().parents[3] / "requirements" / "spark-jars"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def default_cache() -> Path:
    """Return ``KARROT_E2E_CACHE``, or a directory in the user's own cache."""
    return Path(os.environ.get("KARROT_E2E_CACHE") or "~/.cache/karrot-e2e").expanduser()


class Jars(NamedTuple):
    """Two directories of jars, because the logging libraries of Kafka and ZooKeeper conflict."""

    kafka: Path
    zookeeper: Path


class Downloads:
    """A cache directory. Each entry is named with its version, and an existing entry is complete."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def jars(self, kafka_version: str) -> Jars:
        """Return the jars of the brokers, with Kafka's own commands, and of ZooKeeper."""
        wanted = Jars(self._place("kafka", f"-{kafka_version}"), self._place("zookeeper"))
        with self._alone():
            missing = {name: place for name, place in wanted._asdict().items() if not place.exists()}
            if missing:
                self._run_maven(missing, {"kafka.version": kafka_version})
        return wanted

    def spark_kafka(self) -> list[Path]:
        """Return the jars that Spark's Kafka connector needs besides pyspark's own, in the form of ``spark.jars``."""
        return self._spark_jars("kafka")

    def spark_s3(self) -> list[Path]:
        """Return the jars that ``s3a://`` needs besides pyspark's own, in the form of ``spark.jars``."""
        return self._spark_jars("s3")

    def hdfs(self) -> Path:
        """Return the jars of the servers of HDFS."""
        return self._jars("hdfs")

    def delta(self) -> list[Path]:
        """Return the jars with which Spark itself reads Delta tables, in the form of ``spark.jars``."""
        return sorted(self._jars("delta").glob("*.jar"))

    def duckdb_with_delta(self) -> Path:
        """Return a Python that has DuckDB and its extension for Delta tables, which needs this version of DuckDB."""

        def make(scratch: Path) -> None:
            _run([sys.executable, "-m", "venv", str(scratch / "venv")], scratch)
            packages = ["duckdb==1.4.4", "duckdb-ext-delta==1.4.4.20260205"]
            _run([str(scratch / "venv/bin/python"), "-m", "pip", "install", "-q", *packages], scratch)

        return self._kept("duckdb-1.4.4-delta", make) / "venv/bin/python"

    def postgres(self, version: str) -> Path:
        """Return the jar with the programs of a version of PostgreSQL."""
        [jar] = self._jars("postgres", version).glob("*.jar")
        return jar

    def prometheus(self) -> Path:
        """Return the server, with promtool in its directory.

        It comes from ``PROMETHEUS_BIN``, the ``PATH``, or Debian's package, which is unpacked but not installed.
        """
        at_hand = os.environ.get("PROMETHEUS_BIN") or shutil.which("prometheus")
        return Path(at_hand) if at_hand else self._debian("prometheus") / "prometheus"

    def alertmanager(self) -> Path:
        """Return the server, with amtool in its directory.

        It comes from ``ALERTMANAGER_BIN``, the ``PATH``, or Debian's package, which is unpacked but not installed.
        """
        on_path = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
        at_hand = os.environ.get("ALERTMANAGER_BIN") or on_path
        return Path(at_hand) if at_hand else self._debian("prometheus-alertmanager") / "prometheus-alertmanager"

    def _jars(self, module: str, version: str = "") -> Path:
        place = self._place(module, version and f"-{version}")
        with self._alone():
            if not place.exists():
                self._run_maven({module: place}, {f"{module}.version": version})
        return place

    def _spark_jars(self, module: str) -> list[Path]:
        place = self.cache / f"spark-{module}-{_checksum(_SPARK_POMS / module):08x}"
        with self._alone():
            if not place.exists():
                self._run_maven({module: place}, poms=_SPARK_POMS)
        return sorted(place.glob("*.jar"))

    def _place(self, module: str, version: str = "") -> Path:
        """Return the directory for a pom; a changed pom has another directory."""
        return self.cache / f"{module}{version}-{_checksum(_POMS / module):08x}"

    def _run_maven(
        self, missing: Mapping[str, Path], versions: Mapping[str, str] = MappingProxyType({}), *, poms: Path = _POMS
    ) -> None:
        with self._scratch() as scratch:
            command = ["mvn", "-B", "-ntp", "-T", "2", "-f", str(poms), "-pl", ",".join(missing), _COPY]
            told = {"kafka.version": "any", "postgres.version": "any", **versions, "includeScope": "runtime"}
            told["outputDirectory"] = f"{scratch}/${{project.artifactId}}"
            environment = {"MAVEN_OPTS": _SHORT_LIVED_JVM} | os.environ
            _run([*command, *(f"-D{name}={value}" for name, value in told.items())], scratch, environment)
            for name, place in missing.items():
                (scratch / name).rename(place)

    def _debian(self, package: str) -> Path:
        return self._kept(package, partial(_unpack_debian, package)) / "usr/bin"

    def _kept(self, name: str, make: Callable[[Path], None]) -> Path:
        place = self.cache / name
        with self._alone():
            if not place.exists():
                with self._scratch() as scratch:
                    make(scratch)
                    scratch.rename(place)
        return place

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a lock, so that two concurrent runs do not download the same entry twice."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Make an empty directory on the file system of the cache, and remove it afterwards.

        A complete download is renamed out of it, so an entry of the cache is never partial.
        """
        scratch = self.cache / "unfinished"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        yield scratch
        shutil.rmtree(scratch, ignore_errors=True)


def _checksum(module: Path) -> int:
    return zlib.crc32((module / "pom.xml").read_bytes())


def _unpack_debian(name: str, directory: Path) -> None:
    download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name]
    try:
        _run(download, directory)
    except NotStarted:  # a new machine has no package lists yet
        _run(["apt-get", "-qq", "update"], directory)
        _run(download, directory)
    [package] = directory.glob(f"{name}_*.deb")
    _run(["dpkg", "-x", package.name, "."], directory)
    package.unlink()


def _run(command: Sequence[str], directory: Path, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotStarted(
            f"{command[0]} is not on the PATH: install Maven (Debian: maven) and Java 17 or newer "
            "(Debian: default-jre-headless); apt-get comes with Debian and its derivatives only"
        ) from None
    if done.returncode:
        failed = NotStarted(f"{' '.join(command)} ended with {done.returncode}")
        failed.add_note(done.stdout[-3000:] + done.stderr[-3000:])
        raise failed
