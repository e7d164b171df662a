"""The built wheel works in a new environment, alone and next to another distribution called karrot."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

import karrot
from karrot.cli import conflict

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
# Each test installs packages into a new environment; one of the packages may be Spark.
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()

REMEDY = "run pip uninstall karrot karrot-burrow, then pip install karrot-burrow"


class Environment(NamedTuple):
    """A new, empty environment, and the directory of the wheels and of the constraints for it."""

    directory: Path
    wheels: Path

    def install(self, *arguments: str, finds_wheels: bool = True) -> None:
        """Install packages; pip finds our own wheels without an index."""
        found = ["--find-links", str(self.wheels)] if finds_wheels else []
        self._pip("install", *arguments, *found, "--constraint", str(self.wheels / "constraints.txt"))

    def uninstall(self, *names: str) -> None:
        self._pip("uninstall", "--yes", *names)

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def karrot(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run the karrot command of the environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KARROT_", "PYTHON"))}
        command = [str(self.directory / "bin" / "karrot"), *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=kept | environ, capture_output=True, text=True, check=False
        )


CHANNELS = {"KARROT_NOTIFY_CONFIG": "notify.toml"}
CHANNEL = '[channels.ops]\nurl = "json://127.0.0.1:1"\n'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build Karrot's wheel, the same under the name of an older Karrot, and a package of another project."""
    directory = tmp_path_factory.mktemp("wheels")
    subprocess.run([BIN / "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT, check=True)
    # Without the hashes, because pip would then ask for one of our own wheel too.
    pinned = (ROOT / "requirements" / "all.txt").read_text()
    (directory / "constraints.txt").write_text(re.sub(r" \\\n +--hash=\S+", "", pinned))
    [ours] = directory.glob("*.whl")
    with ZipFile(ours) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    older = {}
    for name, content in files.items():
        place = re.sub(r"^karrot_burrow-[^/]*\.dist-info", "karrot-1.9.dist-info", name)
        is_about_itself = place.endswith((".dist-info/METADATA", ".dist-info/RECORD"))
        older[place] = _renamed(content) if is_about_itself else content
    _write(directory / "karrot-1.9-py3-none-any.whl", older)
    _write(
        directory / "karrot-0.1.1+other-py3-none-any.whl",
        {
            "karrot/__init__.py": b"from karrot.client import Client\n\n__all__ = ['Client']\n",
            "karrot/client.py": b"class Client:\n    pass\n",
            "karrot-0.1.1+other.dist-info/METADATA": b"Metadata-Version: 2.1\nName: karrot\nVersion: 0.1.1+other\n",
            "karrot-0.1.1+other.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "karrot-0.1.1+other.dist-info/RECORD": b"karrot/__init__.py,,\nkarrot/client.py,,\n",
        },
    )
    return directory


def _renamed(content: bytes) -> bytes:
    text = content.decode().replace("Name: karrot-burrow", "Name: karrot")
    text = re.sub(r"^Version: .*$", "Version: 1.9", text, count=1, flags=re.MULTILINE)
    return re.sub(r"^karrot_burrow-[^/]*\.dist-info", "karrot-1.9.dist-info", text, flags=re.MULTILINE).encode()


def _write(wheel: Path, files: dict[str, bytes]) -> None:
    with ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.fixture
def environment(wheels: Path, tmp_path: Path) -> Iterator[Environment]:
    directory = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    yield Environment(directory, wheels)
    shutil.rmtree(directory)  # pyspark alone has 400 MB


def test_a_message_names_the_missing_extra_and_no_more_is_needed(environment: Environment) -> None:
    environment.install("karrot-burrow")
    (environment.directory / "tables").mkdir()
    tables = ("--tables", str(environment.directory / "tables"))
    compact = ("pipeline", "run", "--once", "--only", "compact")
    postgresql = {"KARROT_EVENT_LOG": "postgresql://karrot@127.0.0.1:1/karrot"}
    reporter = {"KARROT_REPORTERS": "kafka", "KARROT_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    watch = {"KARROT_WATCH_BOOTSTRAP": "127.0.0.1:1", "KARROT_WATCH_CLUSTER": "prod"}
    needy: list[tuple[str, Callable[[], subprocess.CompletedProcess[str]]]] = [
        ("history", lambda: environment.karrot("history", "groups", *tables)),
        ("spark", lambda: environment.karrot(*compact, *tables)),
        ("kafka", lambda: environment.karrot("check-config", **reporter)),
        ("kafka", lambda: environment.karrot("check-config", **watch)),
        ("postgres", lambda: environment.karrot("check-config", **postgresql)),
        ("notify", lambda: environment.karrot("notify", "--test", "ops", **CHANNELS)),
    ]
    (environment.directory / "notify.toml").write_text(CHANNEL)
    watching = ("kafka", lambda: environment.karrot("watch", "--bootstrap-servers", "127.0.0.1:1", "--cluster", "prod"))
    for extra, run in [*needy, watching]:
        missing = run()
        assert missing.returncode == 2
        assert re.findall(r"pip install '(.+?)'", missing.stderr) == [f"karrot-burrow[{extra}]"]
    # As a user does it: the installed Karrot has the extras, so the command needs no wheel and no index of Karrot's.
    for extra in EXTRAS:
        environment.install(f"karrot-burrow[{extra}]", finds_wheels=False)
    for _, run in needy:  # without the command that would watch until it is stopped
        assert "pip install" not in run().stderr
    if shutil.which("java"):
        compacted = environment.karrot(*compact, *tables)
        assert compacted.returncode == 0, compacted.stderr


MAKE_TABLE = """
import duckdb
from deltalake import Field, Schema, convert_to_deltalake
from deltalake.schema import PrimitiveType
duckdb.sql('''copy (
    select 'prod' as cluster, 'orders' as consumer, timestamptz '2026-01-01 00:01:00+00' as minute, 1 as count,
        7 as lag_min, 7 as lag_max, 7.0 as lag_avg, 7 as lag_last, 2.0 as lag_seconds_max,
        'OK' as worst_status, 0 as not_ok
) to 'lag_minute/day=2026-01-01/part.parquet' (format parquet)''')
by_day = Schema([Field("day", PrimitiveType("date"))])
convert_to_deltalake("lag_minute", partition_by=by_day, partition_strategy="hive")
"""


# The test above runs the pipeline: to install PySpark once more takes a minute.
@pytest.mark.parametrize(
    ("extra", "arguments", "settings", "code", "said"),
    [
        ("", "render dashboard overview", {}, 0, '"uid": "karrot-overview"'),
        ("kafka", "check-config", {"KARROT_REPORTERS": "kafka", "KARROT_KAFKA_BOOTSTRAP": "127.0.0.1:1"}, 0, "=kafka"),
        ("postgres", "serve", {"KARROT_EVENT_LOG": "postgresql://karrot@127.0.0.1:1/one"}, 2, "refused"),
        ("notify", "notify --test ops", CHANNELS, 1, "unreachable"),
        ("history", "history groups --tables . --from 2026-01-01 --to 2026-01-02", {}, 0, "orders"),
    ],
    ids=["no extra", "kafka", "postgres", "notify", "history"],
)
def test_a_command_works_with_the_extra_that_it_needs(  # noqa: PLR0917 (the columns of the table above)
    environment: Environment, extra: str, arguments: str, settings: dict[str, str], code: int, said: str
) -> None:
    [wheel] = environment.wheels.glob("karrot_burrow-*.whl")
    environment.install(f"{wheel}[{extra}]" if extra else str(wheel))
    assert environment.karrot("--help").returncode == 0
    shown = environment.karrot("version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"karrot {karrot.__version__}\n", "")
    (environment.directory / "notify.toml").write_text(CHANNEL)
    if extra == "history":
        (environment.directory / "lag_minute" / "day=2026-01-01").mkdir(parents=True)
        python = str(environment.directory / "bin" / "python")
        subprocess.run([python, "-c", MAKE_TABLE], cwd=environment.directory, check=True)
    done = environment.karrot(*arguments.split(), **settings)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    "order", [("karrot==1.9", "karrot-burrow"), ("karrot-burrow", "karrot==1.9")], ids=" then ".join
)
def test_an_older_karrot_next_to_this_one_does_no_harm_and_is_named(
    environment: Environment, order: tuple[str, str]
) -> None:
    for each in order:
        environment.install(each)
    [site] = environment.directory.glob("lib/python3*/site-packages")
    sentence = (
        f"karrot: 'karrot' is installed too in {site.resolve()} and shares files with 'karrot-burrow': {REMEDY}\n"
    )
    works = environment.karrot("version")
    assert (works.returncode, works.stdout, works.stderr) == (0, f"karrot {karrot.__version__}\n", sentence)
    checked = environment.karrot("check-config", KARROT_REPORTERS="prometheus,archive,stdout")
    assert checked.returncode == 0, checked.stderr
    follow_the_remedy(environment)


def test_files_that_another_project_replaced_are_named_with_the_fix(environment: Environment) -> None:
    environment.install("karrot-burrow")
    assert environment.karrot("version").returncode == 0
    environment.install("karrot==0.1.1+other")
    damaged = environment.karrot("version")
    assert (damaged.returncode, damaged.stdout) == (2, "")
    shares, missing = damaged.stderr.splitlines()
    assert shares.endswith(REMEDY)
    assert missing.startswith("karrot: files of 'karrot-burrow' are missing (cannot import name ")
    assert missing.endswith("): run pip install --force-reinstall karrot-burrow")
    environment.uninstall("karrot")
    (removed,) = environment.karrot("serve").stderr.splitlines()
    assert removed.startswith("karrot: files of 'karrot-burrow' are missing (")
    environment.install("--force-reinstall", "karrot-burrow")
    assert environment.karrot("version").returncode == 0


def follow_the_remedy(environment: Environment) -> None:
    environment.uninstall("karrot", "karrot-burrow")
    environment.install("karrot-burrow")
    mended = environment.karrot("version")
    assert (mended.returncode, mended.stdout, mended.stderr) == (0, f"karrot {karrot.__version__}\n", "")


@pytest.mark.parametrize(
    ("folder", "files", "owns_files"),
    [
        pytest.param("karrot-1.2.dist-info", {}, False, id="no record"),
        pytest.param("karrot-1.2.dist-info", {"RECORD": "carrots/karrot/x.py,,\n"}, False, id="another package"),
        pytest.param("karrot.egg-info", {"SOURCES.txt": "karrot/__init__.py\n"}, False, id="left behind by a build"),
        pytest.param("karrot-1.2.dist-info", {"RECORD": "x,,\nkarrot/a.py,,\n"}, True, id="a file of the package"),
        pytest.param("karrot-1.2.dist-info", {"RECORD": '"karrot/a,b.py",,\n'}, True, id="a quoted name of a file"),
    ],
)
def test_only_a_distribution_with_files_of_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, files: dict[str, str], *, owns_files: bool
) -> None:
    site = tmp_path / "site"
    (site / "karrot").mkdir(parents=True)
    (site / folder).mkdir()
    for name, content in files.items():
        (site / folder / name).write_text(content)
    (tmp_path / "link").symlink_to(site)
    monkeypatch.syspath_prepend(tmp_path / "link")
    sentence = f"'karrot' is installed too in {site} and shares files with 'karrot-burrow': {REMEDY}"
    assert conflict(site / "karrot") == (sentence if owns_files else None)
    assert conflict(tmp_path / "elsewhere" / "karrot") is None


def test_no_file_recommends_installing_the_other_project() -> None:
    told = re.compile(r"pip install (?:-\S+ )*['\"]?karrot(?!-burrow)|(?<![\w-])karrot\[[a-z]")
    places = ["README.md", "CONTRIBUTING.md", "Makefile", "Dockerfile"]
    folders = ["karrot", "docs", "templates", "helm", "examples", "tools"]
    files = [ROOT / each for each in places]
    files += [path for each in folders for path in (ROOT / each).rglob("*") if path.suffix not in {".pyc", ".png"}]
    assert [str(path) for path in files if path.is_file() and told.search(path.read_text(errors="replace"))] == []
