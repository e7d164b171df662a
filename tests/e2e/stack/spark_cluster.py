"""Spark's own cluster: a master, and workers with their own folders and a bare Python that does not have Karrot."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

from e2e.stack.processes import NotStarted, Server, Servers, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
"""Spark as pip installs it: its jars, ``spark-class``, and pyspark for the workers' Python."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options for a quick start. Verifying the bytecode of Spark's classes would cost each JVM two CPU seconds."""

_ROOT = Path(__file__).resolve().parents[3]
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_CLASS = "org.apache.spark.deploy"


class SparkCluster:
    """A master and workers with one core each. The workers run Python tasks with ``python``."""

    def __init__(self, servers: Servers, workers: int = 2) -> None:
        self._servers = servers
        self._count = workers
        self.python = servers.directory / "worker-python" / "bin" / "python"
        self.url = ""
        self.workers: list[Server] = []

    def start(self) -> None:
        """Make the workers' Python, start all processes, and wait until every worker has registered."""
        self._make_python()
        master = self._start("master", "master.Master", "--port", "0", "--webui-port", "0")
        wait_until(lambda: bool(self._find_url(master)), [master], what="the master listens")
        for number in range(1, self._count + 1):
            name = f"worker-{number}"
            place = self._servers.directory / name
            options = ("--cores", "1", "--memory", "1500m", "--webui-port", "0", "--work-dir", place / "work")
            self.workers.append(self._start(name, "worker.Worker", *options, self.url))
        wait_until(self._has_workers, self.workers, what="every worker has registered")

    def executors(self) -> list[int]:
        """Return the process ids of the executors, which are children of the workers."""
        return [child for worker in self.workers for child in _children(worker.pid) if _is_executor(child)]

    def _has_workers(self) -> bool:
        return all(_REGISTERED in worker.log.read_text() for worker in self.workers)

    def _find_url(self, master: Server) -> str:
        found = _MASTER_AT.search(master.log.read_text())
        self.url = found[1] if found else ""
        return self.url

    def _make_python(self) -> None:
        """Install what ``requirements/spark-worker.txt`` pins, and nothing else."""
        place = self.python.parents[1]
        pinned = _ROOT / "requirements" / "spark-worker.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        for command in (
            ("venv", "--without-pip", place),
            ("pip", "--python", place, "install", "-q", "--no-deps", "--require-hashes", "-r", pinned),
        ):
            whole = [sys.executable, "-m", *map(str, command)]
            done = subprocess.run(whole, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotStarted(f"the workers' Python: {done.stderr}")

    def _start(self, name: str, main: str, *options: str | Path) -> Server:
        """Start a process with its own folder, and with only the environment that a service has."""
        place = self._servers.directory / name
        place.mkdir(parents=True)
        java = Path(os.environ["JAVA_HOME"], "bin") if "JAVA_HOME" in os.environ else Path(_found("java")).parent
        environment = {
            "PATH": f"{java}{os.pathsep}{os.defpath}",
            "HOME": place,
            "SPARK_HOME": SPARK_HOME,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": place / "local",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it would take a port with a fixed number
        }
        command = [
            *("env", "--ignore-environment", f"--chdir={place}"),
            *(f"{key}={value}" for key, value in environment.items()),
            *(SPARK_HOME / "bin" / "spark-class", f"{_CLASS}.{main}", "--host", "127.0.0.1", *options),
        ]
        return self._servers.start(name, command)


def _found(program: str) -> str:
    if (path := shutil.which(program)) is None:
        raise NotStarted(f"{program} is not on the PATH")
    return path


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process. A thread can end meanwhile."""
    found = list[int]()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text().split())
    return found


def _is_executor(pid: int) -> bool:
    """Whether a process is an executor. A worker also has a child that ended before ``spark-class`` became Java."""
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
