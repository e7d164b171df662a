"""Runs the pipeline's commands on a store, and watches the tables as a reader that opens them all the while."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from karrot.history.delta_tables import data_files, open_table
from karrot.pipeline.schemas_and_conversions import TABLES

_LOOK_EVERY_S = 0.3
_STEPS = ("events", "derive", "compact")

_QUICK = MappingProxyType(
    {
        # With one compiler, the JVM keeps little room for code, and it prints warnings to standard output.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
        "-Xlog:disable -Xlog:all=warning:stderr",
        "spark.sql.shuffle.partitions": "1",
        # For the few rows of a test, compiling a query takes many times as long as interpreting it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
)


class Store(Protocol):
    """A store that is not a local disk, with the environment and the Spark settings of programs that use it."""

    @property
    def url(self) -> str:
        """The place of all files, as the pipeline's options take it."""

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """The settings of docs/pipeline.md for the store, and its jars."""

    @property
    def delta_options(self) -> Mapping[str, str]:
        """The ``storage_options`` with which a reader of Delta tables opens a table of the store."""

    def write(self, key: str, content: bytes) -> None:
        """Write a file."""

    def listed(self, prefix: str) -> dict[str, str]:
        """The files below a prefix, each with a text that changes when it is replaced."""

    def read(self, key: str) -> bytes | None:
        """The content of a file; ``None`` if it is gone."""


class LocalDisk(NamedTuple):
    """A directory, as a store."""

    root: Path
    environment: Mapping[str, str] = MappingProxyType({})
    spark_conf: Mapping[str, str] = MappingProxyType({})
    delta_options: Mapping[str, str] = MappingProxyType({})

    @property
    def url(self) -> str:
        return str(self.root)

    def write(self, key: str, content: bytes) -> None:
        """Write a file, and make its directory."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def listed(self, prefix: str) -> dict[str, str]:
        """The files below a prefix, with their inodes and times."""
        files = sorted(Path(parent, name) for parent, _, names in os.walk(self.root / prefix) for name in names)
        found = {}
        for path in files:
            with suppress(FileNotFoundError):  # a command has moved it since
                found[str(path.relative_to(self.root))] = f"{path.stat()}"
        return found

    def read(self, key: str) -> bytes | None:
        """The content of a file; ``None`` if it is gone."""
        path = self.root / key
        return path.read_bytes() if path.exists() else None


def upload(store: Store, directory: Path, prefix: str) -> None:
    """Copy the files of a directory to files below a prefix, except those that are there."""
    there = store.listed(f"{prefix}/")
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        key = f"{prefix}/{path.relative_to(directory)}"
        if key not in there:
            store.write(key, path.read_bytes())


def downloaded(store: Store, prefix: str, directory: Path) -> Path:
    """Copy the files below a prefix to a directory, and return the directory."""
    for key in store.listed(f"{prefix}/"):
        path = directory / key.removeprefix(f"{prefix}/")
        if not key.endswith("/"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(key) or b"")
    return directory


def spark_options(store: Store) -> list[str]:
    """The options of a command on the store."""
    conf = {**store.spark_conf, **_QUICK}
    return ["--master", "local[2]", *(part for pair in conf.items() for part in ("--conf", "=".join(pair)))]


@dataclass
class Commands:
    """A process that runs commands of ``karrot pipeline``; see `e2e.commands_in_one_jvm`."""

    process: "subprocess.Popen[str]"
    options: Sequence[str]

    @classmethod
    @contextmanager
    def started(cls, store: Store, log: Path) -> Iterator[Self]:
        """Start the process. Its log has what Spark prints."""
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "e2e.commands_in_one_jvm"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | store.environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            try:
                yield cls(process, spark_options(store))
            finally:
                process.kill()
                process.communicate()  # also closes the pipes

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run a command, or only a step of ``karrot pipeline run``, and return what it printed."""
        return "".join(self.streams(command, *arguments, code=code))

    def streams(self, command: str, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command, and return its standard output and its standard error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        words = ["run", "--once", "--only", command] if command in _STEPS else [command]
        self.process.stdin.write(json.dumps(["pipeline", *words, *self.options, *arguments]) + "\n")
        self.process.stdin.flush()
        ended, output, errors = json.loads(self.process.stdout.readline())
        assert ended == code, f"{command} ended with {ended}: {output}{errors}"
        return output, errors


@dataclass
class VersionReader:
    """Opens the newest versions of the tables all the while.

    ``looks`` has, for each look, the rows of each file of each day (or piece of a day) of each table. ``wrong`` has
    what a reader must not see: a listed file that is missing or has other rows, or a note that is no JSON.
    """

    store: Store
    prefix: str
    looks: list[dict[str, list[int]]] = field(default_factory=list)
    notes: list[frozenset[str]] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read until the block ends."""
        stop = Event()

        def read() -> None:
            while not stop.wait(_LOOK_EVERY_S):
                self.look()

        thread = Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self.look()

    def look(self) -> None:
        """Open each table once, and read the files that are new."""
        found = defaultdict[str, list[int]](list)
        for name in TABLES:
            table = open_table(f"{self.store.url}/{self.prefix}/{name}", self.store.delta_options)
            for file in data_files(table) if table else ():
                self._check_file(f"{self.prefix}/{name}/{file.path}", file.rows)
                found[f"{name}/{file.day}/{file.piece}"].append(file.rows)
        notes = {name: self.store.read(f"{self.prefix}/{name}") for name in ("_derived.json", "_format.json")}
        self.looks.append(dict(found))
        self.notes.append(frozenset(name for name, content in notes.items() if content is not None))
        for name, content in notes.items():
            try:
                json.loads(content or b"{}")
            except ValueError:
                self.wrong.add(f"{name} is {content!r}")

    def _check_file(self, key: str, rows: int) -> None:
        if key in self._read:
            return
        self._read.add(key)
        content = self.store.read(key)
        try:
            found = None if content is None else pq.read_metadata(BytesIO(content)).num_rows
        except pa.ArrowException as error:
            self.wrong.add(f"{key}: {error}")
        else:
            if found != rows:
                self.wrong.add(f"{key} has {found} rows of {rows}")
