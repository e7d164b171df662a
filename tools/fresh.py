"""Tests the README's two commands as a new user runs them: in a minimal Debian, with an empty environment.

Run ``make fresh`` or ``python3 tools/fresh.py`` as root, with debootstrap installed. In a new chroot it does this:

1. Install a minimal Debian and only the packages that the README names.
2. Clone the checked-out commit as a normal user.
3. Run ``make demo``: lag changes within 30 s, and Ctrl-C ends it.
4. Install the packages that the README names for skipped tests (Java), except with ``--without-java``.
5. Run ``make test``: it passes and gives a known reason for each skipped test. List the skipped tests in
   ``build/fresh-skipped``.

The chroot has nothing of this machine but the access to its package indexes: names, certificate authorities, apt's
settings and ``/etc/pip.conf``. No variable of the environment is lent, because a new user has none.

The chroot has its own mount and process namespaces. The script names the processes that still run, and ends them.
If a machine cannot do all this, the script prints the reason. The exit code is then 0, or 1 if ``CI`` is set.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import urlopen
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parents[1]
USER: Final = "stranger"
HOME: Final = f"/home/{USER}"
CLONE: Final = f"{HOME}/karrot"
VENV_PACKAGE: Final = "python3-venv"
JUNIT: Final = "build/junit.xml"
STILL_SKIPPED: Final = ROOT / "build" / "fresh-skipped"
"""This file lists the tests that a minimal Debian cannot run, each by its id: ``pytest @build/fresh-skipped``."""

NAMESPACES: Final = "KARROT_FRESH_NAMESPACES"

DEMO_MOVES_WITHIN_S: Final = 30.0
COMMAND_WITHIN_S: Final = 2700.0
STOPS_WITHIN_S: Final = 30.0
BASE_IS_KEPT_S: Final = 7 * 86_400

EXPLAINED: Final = re.compile(
    r"\bneeds (root|strace|a C compiler|actionlint|a prometheus|promtool|Alertmanager|kube-score|terraform|PostgreSQL"
    r"|HAProxy|PgBouncer|groff|man-db)\b"
)
"""The allowed reasons for skipped tests on a machine with all packages of the README."""

EXPLAINED_WITHOUT_JAVA: Final = re.compile(rf"{EXPLAINED.pattern}|\bneeds Java\b")
"""The allowed reasons if the optional packages are missing."""


class BrokenPromise(Exception):  # noqa: N818 (it is not an error of this script)
    """A promise of the README does not hold. The message says which promise."""


class Readme(NamedTuple):
    """The commands that the README gives to a new user."""

    packages: tuple[str, ...]
    optional_packages: tuple[str, ...]
    commands: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Readme":
        """Read the shell blocks. Raises `BrokenPromise` if they have other commands than this script expects."""
        blocks = re.findall(r"^```shell\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
        installs = [shlex.split(line)[3:] for line in lines if line.startswith("sudo apt-get install ")]
        commands = tuple(line for line in lines if line in {"make demo", "make test"})
        if len(installs) != 2 or commands != ("make demo", "make test"):  # noqa: PLR2004 (needed, optional)
            raise BrokenPromise(
                f"{path.name} shows {installs} and {commands}: expected two apt-get lines and two commands"
            )
        return cls(tuple(installs[0]), tuple(installs[1]), commands)


def main() -> int:
    """Follow the README on one or more releases of Debian. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", action="append", help="a release of Debian; may be repeated (default: bookworm)")
    parser.add_argument("--without-java", action="store_true", help="leave out the optional packages of the README")
    parser.add_argument("--shell", action="store_true", help="end with a shell as the normal user")
    arguments = parser.parse_args()
    if (lacking := _lacking()) is not None:
        print(f"make fresh is LEFT OUT: {lacking}")
        return 1 if os.environ.get("CI") else 0
    if NAMESPACES not in os.environ:
        _enter_namespaces()
    readme = Readme.read(ROOT / "README.md")
    with _cache() as cache:
        for release in arguments.release or ["bookworm"]:
            with _debian(cache, release) as machine:
                try:
                    _follow(readme, machine, with_java=not arguments.without_java)
                except BrokenPromise as problem:
                    print(f"\nmake fresh: {release}: {problem}", flush=True)
                    return 1
                finally:
                    if arguments.shell:
                        subprocess.run(machine.as_user("bash -i"), check=False)
    return 0


def _lacking() -> str | None:
    """Return a sentence with what this machine lacks for a chroot, or ``None``."""
    if os.geteuid() != 0:
        return "it needs root, for a chroot"
    absent = [name for name in ("debootstrap", "unshare", "git") if shutil.which(name) is None]
    if absent:
        return f"it needs {', '.join(absent)} (Debian: apt-get install debootstrap util-linux git)"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        return "this machine allows no mount or process namespace"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if commit.returncode:
        return f"it needs a commit to clone, and git says: {commit.stderr.strip()}"
    return None


def _enter_namespaces() -> None:
    """Start this script again in its own namespaces, so that its mounts are private and its processes end with it."""
    # A shell is the first process, because it reaps orphaned processes, like the first process of a real machine.
    script = ["bash", "-c", '"$@"; exit "$?"', "fresh", sys.executable, *sys.argv]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *script]
    os.execvpe("unshare", command, {**os.environ, NAMESPACES: "1"})  # noqa: S606 (no shell is wanted)


class Machine:
    """A Debian in a directory. It runs commands as root or as a normal user, with an empty environment."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def as_root(self, *command: str) -> None:
        """Run a command without output. If the command fails, raise `BrokenPromise` with its output."""
        whole = self._command(command, {"HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"})
        done = subprocess.run(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise BrokenPromise(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")

    def install(self, *packages: str) -> None:
        """Install packages of Debian."""
        self.as_root("apt-get", "-qq", "install", "--no-install-recommends", "-y", *packages)

    def as_user(self, line: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the command that runs a line of shell as the normal user."""
        given = {"HOME": HOME, "USER": USER, "LOGNAME": USER, "TERM": "dumb", **(environment or {})}
        drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--inh-caps=-all"]
        return self._command([*drop, "bash", "-c", f"cd {HOME} && {line}"], given)

    def _command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        pairs = [f"{name}={value}" for name, value in {"PATH": path, **environment}.items()]
        return ["/usr/sbin/chroot", str(self.root), "/usr/bin/env", "-i", *pairs, *command]


@contextlib.contextmanager
def _cache() -> Iterator[Path]:
    """Lock and return the directory of the chroots. Remove the files that a killed run left there."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "karrot" / "fresh"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another make fresh uses {place}")
        for left in place.glob("run-*"):
            shutil.rmtree(left)
        yield place.resolve()  # as /proc names it


@contextlib.contextmanager
def _debian(cache: Path, release: str) -> Iterator[Machine]:
    """Make a minimal Debian with the commit and with this machine's settings for package indexes."""
    root = Path(tempfile.mkdtemp(prefix=f"run-{release}-", dir=cache))
    try:
        with _timed(f"a minimal Debian ({release})"):
            subprocess.run(["cp", "-a", "--reflink=auto", f"{_base(cache, release)}/.", root], check=True)
        _mount(root)
        _lend_access(root)
        bare = root / "srv" / "karrot.git"
        subprocess.run(["git", "clone", "--quiet", "--bare", "--no-hardlinks", ROOT, bare], check=True)
        machine = Machine(root)
        machine.as_root("useradd", "--create-home", "--shell", "/bin/bash", USER)
        machine.as_root("chown", "-R", f"{USER}:{USER}", "/srv/karrot.git")
        yield machine
    finally:
        _end_all(root)
        for place in ("proc", "dev/shm", "dev/pts"):
            subprocess.run(["umount", "--lazy", root / place], capture_output=True, check=False)
        shutil.rmtree(root)


def _base(cache: Path, release: str) -> Path:
    """Return a copy of debootstrap's result. The copy is used for a week."""
    base = cache / release
    if base.exists() and time.time() - base.stat().st_mtime > BASE_IS_KEPT_S:
        shutil.rmtree(base)
    if not base.exists():
        with tempfile.TemporaryDirectory(prefix="run-base-", dir=cache) as directory:
            made = Path(directory) / "base"
            script = [] if Path("/usr/share/debootstrap/scripts", release).exists() else ["sid"]
            suite = ["debootstrap", "--variant=minbase", release, str(made)]
            mirror = [_mirror()] if script else []
            done = subprocess.run([*suite, *mirror, *script], capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"debootstrap {release} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
            made.touch()
            made.rename(base)
    return base


def _mirror() -> str:
    """Return the mirror from which this machine's apt gets its packages."""
    entry = re.compile(r"^(?:URIs:|deb )\s*(?:\[.*?\] )?(\S+/debian)/?\s", re.MULTILINE)
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        found = path.is_file() and entry.search(path.read_text())
        if found:
            return found[1]
    sys.exit("no mirror of Debian is named in /etc/apt")


def _mount(root: Path) -> None:
    """Mount the usual file systems of a machine, in this process's own mount namespace."""
    for kind, place, options in (
        ("proc", "proc", "nosuid,nodev,noexec"),
        ("tmpfs", "dev/shm", "nosuid,nodev"),
        ("devpts", "dev/pts", "nosuid,noexec,newinstance,ptmxmode=0666"),
    ):
        (root / place).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", kind, "-o", options, kind, root / place], check=True)


def _lend_access(root: Path) -> None:
    """Copy the files for network access to the chroot: names, certificate authorities, settings of package clients."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    # Debian's installer and every container runtime write this file, but debootstrap does not.
    hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 {socket.gethostname()}\n"
    (root / "etc" / "hosts").write_text(hosts)
    authorities = Path("/usr/local/share/ca-certificates")
    if authorities.is_dir():
        shutil.copytree(authorities, root / authorities.relative_to("/"), dirs_exist_ok=True)
    for settings in (Path("/etc/pip.conf"), *Path("/etc/apt/apt.conf.d").glob("*")):
        if settings.is_file() and "docker" not in settings.name and "autoremove" not in settings.name:
            shutil.copy(settings, root / settings.relative_to("/"))


def _follow(readme: Readme, machine: Machine, *, with_java: bool) -> None:
    """Follow the README. Raises `BrokenPromise` at the first promise that does not hold."""
    demo, test = readme.commands
    with _timed(f"apt-get install {' '.join(readme.packages)}"):
        machine.as_root("apt-get", "-qq", "update")
        machine.install(*(each for each in readme.packages if each != VENV_PACKAGE))
        _run(machine, "git clone -q /srv/karrot.git karrot")
        _expect_advice(machine, demo)
        machine.install(VENV_PACKAGE)
    version = subprocess.run(
        machine.as_user("python3 --version"), capture_output=True, text=True, check=True
    ).stdout.strip()
    with _timed(f"{demo} ({version})"):
        _watch_demo(machine, demo)
    if with_java:
        with _timed(f"apt-get install {' '.join(readme.optional_packages)}"):
            machine.install(*readme.optional_packages)
    with _timed(f"{test} ({version}, {'with' if with_java else 'without'} Java)"):
        _run(machine, f"cd karrot && {test}", {"PYTEST_ADDOPTS": f"--junitxml={JUNIT}"})
    skipped = _skipped(machine)
    _explain(skipped, EXPLAINED if with_java else EXPLAINED_WITHOUT_JAVA)
    _refuse_leftovers(machine)
    STILL_SKIPPED.parent.mkdir(exist_ok=True)
    STILL_SKIPPED.write_text("".join(f"{each.test}\n" for each in skipped))


def _run(machine: Machine, line: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a line of shell as the user and show its output. Raises `BrokenPromise` if it fails."""
    try:
        process = subprocess.run(machine.as_user(line, environment), timeout=COMMAND_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise BrokenPromise(f"`{line}` did not end within {COMMAND_WITHIN_S:g} s") from None
    if process.returncode:
        raise BrokenPromise(f"`{line}` ended with {process.returncode}")


def _expect_advice(machine: Machine, command: str) -> None:
    """Check that the command names Debian's missing package for virtual environments. Raises `BrokenPromise`."""
    line = machine.as_user(f"cd karrot && {command}")
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0 or f"apt-get install {VENV_PACKAGE}" not in done.stdout:
        raise BrokenPromise(f"without {VENV_PACKAGE}, `{command}` ended with {done.returncode}:\n{done.stdout[-4000:]}")


def _watch_demo(machine: Machine, command: str) -> None:
    """Check that the demo shows changing lag and ends with Ctrl-C. Raises `BrokenPromise`."""
    began = time.monotonic()
    line = machine.as_user(f"cd karrot && exec {command}")
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        killer = threading.Timer(COMMAND_WITHIN_S, process.kill)
        killer.start()
        try:
            address = _address(process)
            up = time.monotonic()
            _wait_until_lag_moves(address)
            moved = time.monotonic()
            print(f"the demo was up after {up - began:.1f} s, lag moved {moved - up:.1f} s later", flush=True)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
            process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise BrokenPromise(f"`{command}` did not end within {STOPS_WITHIN_S:g} s of Ctrl-C") from None
        finally:
            killer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    _refuse_leftovers(machine)


def _address(process: "subprocess.Popen[str]") -> str:
    """Return the URL of the metrics from the demo's first output."""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if found := re.search(r"http://\S+/metrics\b", line):
            return found[0]
    raise BrokenPromise("the demo ended without naming the address of its metrics")


def _wait_until_lag_moves(address: str) -> None:
    """Wait until one group has had two different lags."""
    start = time.monotonic()
    seen: dict[str, str] = {}
    while all(seen.setdefault(group, lag) == lag for group, lag in _lags(address).items()):
        if time.monotonic() - start > DEMO_MOVES_WITHIN_S:
            raise BrokenPromise(f"no lag moved within {DEMO_MOVES_WITHIN_S:g} s")
        time.sleep(0.2)


def _lags(address: str) -> dict[str, str]:
    with urlopen(address, timeout=10) as answer:  # noqa: S310 - the address is the demo's own
        return dict(re.findall(r"^karrot_consumer_lag(\{.*\}) (\S+)$", answer.read().decode(), re.MULTILINE))


class Skipped(NamedTuple):
    """A test that was skipped, by its id."""

    test: str
    reason: str


def _skipped(machine: Machine) -> list[Skipped]:
    """Return the tests that the last run of pytest in the clone skipped, from its JUnit report."""
    cases = ET.parse(machine.root / CLONE.lstrip("/") / JUNIT).iter("testcase")  # noqa: S314 (pytest's own)
    found = []
    for case in cases:
        for skip in case.iter("skipped"):
            parts, names = case.get("classname", "").split("."), [case.get("name", "")]
            while parts and not (ROOT / "/".join(parts)).with_suffix(".py").exists():
                names.insert(0, parts.pop())  # the names of test classes come after the module's name
            found.append(Skipped("::".join(("/".join(parts) + ".py", *names)), skip.get("message", "")))
    return found


def _explain(skipped: Sequence[Skipped], expected: re.Pattern[str]) -> None:
    """Raises `BrokenPromise` for an unexpected reason."""
    if unexpected := sorted({each.reason for each in skipped if not expected.search(each.reason)}):
        raise BrokenPromise(f"tests were skipped for reasons that the README does not name: {unexpected}")


def _refuse_leftovers(machine: Machine) -> None:
    """Raise `BrokenPromise` if a process of the user still runs a few seconds after its command."""
    end = time.monotonic() + 5
    while (left := _processes_in(machine.root)) and time.monotonic() < end:
        time.sleep(0.2)
    if left:
        raise BrokenPromise(f"still running: {', '.join(left.values())}")


def _processes_in(root: Path) -> dict[int, str]:
    """Return the processes with this root directory, and their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has just ended
            if (process / "root").readlink() == root:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(process.name)] = line.strip()[:200]
    return found


def _end_all(root: Path) -> None:
    """Kill all processes in the chroot, so that the chroot can be removed."""
    for pid in _processes_in(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    """Print a line at the start of a step, and the step's duration at its end."""
    print(f"\n--- {what}", flush=True)
    start = time.monotonic()
    yield
    print(f"--- {what}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
