"""Runs a container with runc, like Kubernetes' restricted profile and ``docker run --read-only``.

The root is read-only, and there are no capabilities, no new privileges and no /tmp. Only the data directory is
writable. Only the network is the machine's own.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

USER = 65532


def _tmpfs(destination: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": list(options)}


class Container:
    """A container that runs the image's command on the image's files until the end of the ``with`` block.

    ``temporary`` names writable directories whose content is not kept.
    """

    def __init__(
        self,
        root: Path,
        config: Mapping[str, Any],
        directory: Path,
        data: Path,
        environment: Mapping[str, str],
        *,
        temporary: tuple[str, ...] = (),
    ) -> None:
        self._temporary = temporary
        self._directory = directory
        self._name = f"karrot-{os.getpid()}-{directory.name}"
        self._runc = ["runc", "--root", str(directory / "state")]
        self.said = directory / "said.log"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(self._bundle(root, config, data, environment)))

    def _bundle(
        self, root: Path, config: Mapping[str, Any], data: Path, environment: Mapping[str, str]
    ) -> dict[str, Any]:
        uid, gid = map(int, config["User"].split(":"))
        process = {
            "user": {"uid": uid, "gid": gid},
            "args": [*config["Entrypoint"], *config["Cmd"]],
            "cwd": config["WorkingDir"],
            "env": [*config["Env"], *(f"{name}={value}" for name, value in environment.items())],
            "capabilities": {},
            "noNewPrivileges": True,
        }
        hosts = self._directory / "hosts"  # like the one that Docker and Kubernetes write
        hosts.write_text("127.0.0.1 localhost\n")
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _tmpfs("/dev", "nosuid", "mode=755"),
            _tmpfs("/dev/shm", "nosuid", "nodev", "mode=1777", "size=65536k"),
            {"destination": "/data", "type": "bind", "source": str(data), "options": ["bind", "rw"]},
            {"destination": "/etc/hosts", "type": "bind", "source": str(hosts), "options": ["bind", "ro"]},
            *(_tmpfs(place, "nosuid", "nodev", "mode=1777") for place in self._temporary),
        ]
        return {
            "ociVersion": "1.0.2",
            "process": process,
            "root": {"path": str(root), "readonly": True},
            "hostname": "localhost",
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
                "cgroupsPath": f"/{self._name}",
            },
        }

    def __enter__(self) -> Self:
        with self.said.open("wb") as said:
            command = [*self._runc, "run", "--bundle", str(self._directory), self._name]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait(20)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command inside, as ``docker exec`` does."""
        return subprocess.run([*self._runc, "exec", self._name, *command], capture_output=True, text=True, check=False)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the container's first process."""
        subprocess.run([*self._runc, "kill", self._name, str(int(number))], check=True)

    def wait(self, timeout_s: float) -> int:
        """Wait for the container's first process; return its exit code."""
        return self._process.wait(timeout_s)
