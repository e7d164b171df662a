"""The built wheel works in a new environment, alone and next to another project's package called karrot."""

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
from karrot.distribution_conflict import intruder

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
        directory / "karrot-0.1.1-py3-none-any.whl",
        {
            "karrot/__init__.py": b"from karrot.client import Client\n\n__all__ = ['Client']\n",
            "karrot/client.py": b"class Client:\n    pass\n",
            "karrot-0.1.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: karrot\nVersion: 0.1.1\n",
            "karrot-0.1.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "karrot-0.1.1.dist-info/RECORD": b"karrot/__init__.py,,\nkarrot/client.py,,\n",
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
    day = environment.directory / "tables" / "lag_minute" / "day=2026-01-01"
    day.mkdir(parents=True)
    (day / "part.parquet").write_bytes(b"PAR1")
    tables = ("--tables", str(environment.directory / "tables"))
    postgresql = {"KARROT_EVENT_LOG": "postgresql://karrot@127.0.0.1:1/karrot"}
    reporter = {"KARROT_REPORTERS": "kafka", "KARROT_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    watch = {"KARROT_WATCH_BOOTSTRAP": "127.0.0.1:1", "KARROT_WATCH_CLUSTER": "prod"}
    needy: list[tuple[str, Callable[[], subprocess.CompletedProcess[str]]]] = [
        ("history", lambda: environment.karrot("history", "groups", *tables)),
        ("spark", lambda: environment.karrot("pipeline", "compact", *tables)),
        ("kafka", lambda: environment.karrot("check-config", **reporter)),
        ("kafka", lambda: environment.karrot("check-config", **watch)),
        ("postgres", lambda: environment.karrot("check-config", **postgresql)),
    ]
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
        (day / "part.parquet").unlink()
        compacted = environment.karrot("pipeline", "compact", *tables)
        assert compacted.returncode == 0, compacted.stderr


ONE_MINUTE = """copy (
    select 'prod' as cluster, 'orders' as consumer, timestamptz '2026-01-01 00:01:00+00' as minute, 1 as count,
        7 as lag_min, 7 as lag_max, 7.0 as lag_avg, 7 as lag_last, 2.0 as lag_seconds_max,
        'OK' as worst_status, 0 as not_ok
) to 'lag_minute/day=2026-01-01/part.parquet'"""


# The test above runs the pipeline: to install PySpark once more takes a minute.
@pytest.mark.parametrize(
    ("extra", "arguments", "settings", "code", "said"),
    [
        ("", "render dashboard overview", {}, 0, '"uid": "karrot-overview"'),
        ("kafka", "check-config", {"KARROT_REPORTERS": "kafka", "KARROT_KAFKA_BOOTSTRAP": "127.0.0.1:1"}, 0, "=kafka"),
        ("postgres", "serve", {"KARROT_EVENT_LOG": "postgresql://karrot@127.0.0.1:1/one"}, 2, "refused"),
        ("history", "history groups --tables . --from 2026-01-01 --to 2026-01-02", {}, 0, "orders"),
    ],
    ids=["no extra", "kafka", "postgres", "history"],
)
def test_a_command_works_with_the_extra_that_it_needs(  # noqa: PLR0917 (the columns of the table above)
    environment: Environment, extra: str, arguments: str, settings: dict[str, str], code: int, said: str
) -> None:
    [wheel] = environment.wheels.glob("karrot_burrow-*.whl")
    environment.install(f"{wheel}[{extra}]" if extra else str(wheel))
    assert environment.karrot("--help").returncode == 0
    shown = environment.karrot("version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"karrot {karrot.__version__}\n", "")
    if extra == "history":
        (environment.directory / "lag_minute" / "day=2026-01-01").mkdir(parents=True)
        python = str(environment.directory / "bin" / "python")
        subprocess.run(
            [python, "-c", f"import duckdb; duckdb.sql({ONE_MINUTE!r})"], cwd=environment.directory, check=True
        )
    done = environment.karrot(*arguments.split(), **settings)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    "order", [("karrot==0.1.1", "karrot-burrow"), ("karrot-burrow", "karrot==0.1.1")], ids=" then ".join
)
def test_a_package_of_another_project_is_refused_with_the_fix(environment: Environment, order: tuple[str, str]) -> None:
    for each in order:
        environment.install(each)
    [site] = environment.directory.glob("lib/python3*/site-packages")
    sentence = (
        f"karrot: another project is installed as 'karrot' 0.1.1 in {site.resolve()} and shares files with "
        f"'karrot-burrow': {REMEDY}\n"
    )
    for command in (["version"], ["--version"], ["check-config"], ["doctor"], ["serve"]):
        refused = environment.karrot(*command)
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", sentence), command
    follow_the_remedy(environment)


@pytest.mark.parametrize(
    "order", [("karrot==1.9", "karrot-burrow"), ("karrot-burrow", "karrot==1.9")], ids=" then ".join
)
def test_an_older_karrot_next_to_this_one_does_no_harm_and_is_named(
    environment: Environment, order: tuple[str, str]
) -> None:
    for each in order:
        environment.install(each)
    works = environment.karrot("version")
    assert (works.returncode, works.stdout) == (0, f"karrot {karrot.__version__}\n")
    assert works.stderr.startswith("karrot: an older Karrot is installed as 'karrot' 1.9 in ")
    assert works.stderr.endswith(f"{REMEDY}\n")
    checked = environment.karrot("check-config", KARROT_REPORTERS="prometheus,archive,stdout")
    assert checked.returncode == 0, checked.stderr
    follow_the_remedy(environment)


def test_files_of_karrot_that_the_other_project_removed_are_named_with_the_fix(environment: Environment) -> None:
    environment.install("karrot-burrow")
    assert environment.karrot("version").returncode == 0
    environment.install("karrot==0.1.1")
    refused = environment.karrot("version")
    assert refused.returncode == 2
    assert refused.stderr.startswith("karrot: another project is installed as 'karrot' 0.1.1 in ")
    environment.uninstall("karrot")
    for command in (["version"], ["serve"]):
        damaged = environment.karrot(*command)
        assert (damaged.returncode, damaged.stdout) == (2, "")
        assert damaged.stderr.startswith("karrot: files of 'karrot-burrow' are missing (cannot import name ")
        assert damaged.stderr.endswith("): run pip install --force-reinstall karrot-burrow\n")
    environment.install("--force-reinstall", "karrot-burrow")
    assert environment.karrot("version").returncode == 0


def follow_the_remedy(environment: Environment) -> None:
    environment.uninstall("karrot", "karrot-burrow")
    environment.install("karrot-burrow")
    mended = environment.karrot("version")
    assert (mended.returncode, mended.stdout, mended.stderr) == (0, f"karrot {karrot.__version__}\n", "")


METADATA = "Metadata-Version: 2.1\nName: karrot\nVersion: 1.2\n"
ANOTHER, OLDER = "another project", "an older Karrot"


@pytest.mark.parametrize(
    ("folder", "files", "what"),
    [
        pytest.param("karrot-1.2.dist-info", {}, None, id="no files"),
        pytest.param("karrot-1.2.dist-info", {"RECORD": "karrot/__init__.py,,\n"}, None, id="no metadata"),
        pytest.param("karrot-1.2.dist-info", {"METADATA": METADATA}, None, id="no record"),
        pytest.param(
            "karrot-1.2.dist-info",
            {"METADATA": METADATA, "RECORD": "carrots/karrot/__init__.py,,\n"},
            None,
            id="a package of this name below another package",
        ),
        pytest.param(
            "karrot.egg-info",
            {"PKG-INFO": METADATA, "SOURCES.txt": "karrot/__init__.py\n"},
            None,
            id="an egg without a list of its installed files",
        ),
        pytest.param(
            "karrot-1.2.dist-info",
            {"METADATA": METADATA, "RECORD": "x,,\nkarrot/__init__.py,,\n"},
            ANOTHER,
            id="a file of the package",
        ),
        pytest.param(
            "karrot-1.2.dist-info",
            {"METADATA": METADATA, "RECORD": '"karrot/a,b.py",,\n'},
            ANOTHER,
            id="a quoted name of a file",
        ),
        pytest.param(
            "karrot-1.2.egg-info",
            {"PKG-INFO": METADATA, "installed-files.txt": "../karrot/__init__.py\n"},
            ANOTHER,
            id="an egg with a list of its installed files",
        ),
        pytest.param(
            "karrot-1.2.dist-info",
            {"METADATA": METADATA, "RECORD": "karrot/reporters/base.py,,\n"},
            OLDER,
            id="a file of Karrot",
        ),
        pytest.param(
            "karrot-1.2.dist-info",
            {
                "METADATA": METADATA,
                "RECORD": "karrot/cli.py,,\n",
                "entry_points.txt": "[karrot.reporters]\nstdout = karrot.out:Out\n",
            },
            OLDER,
            id="an entry point of Karrot",
        ),
    ],
)
def test_only_a_removable_distribution_with_files_of_the_package_counts_as_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, files: dict[str, str], what: str | None
) -> None:
    _installed(tmp_path, folder, files)
    monkeypatch.syspath_prepend(tmp_path)
    found = intruder(tmp_path / "karrot")
    sentence = f"{what} is installed as 'karrot' 1.2 in {tmp_path} and shares files with 'karrot-burrow': {REMEDY}"
    assert (found and str(found)) == (what and sentence)


def test_another_project_is_found_behind_other_distributions_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, cache, elsewhere = tmp_path / "site", tmp_path / "cache", tmp_path / "elsewhere"
    record = {"METADATA": METADATA, "RECORD": "karrot/__init__.py,,\n"}
    _installed(elsewhere, "karrot-1.2.dist-info", record)
    _installed(site, "karrot-1.1.dist-info", {"METADATA": METADATA, "RECORD": "karrot/reporters/base.py,,\n"})
    _installed(site, "karrot-1.2.dist-info", record)
    (site / "karrot").rename(cache)
    (site / "karrot").symlink_to(cache)
    (tmp_path / "link").symlink_to(site)
    for each in (tmp_path / "link", elsewhere):  # the first one is in another directory
        monkeypatch.syspath_prepend(each)
    for package in (site / "karrot", tmp_path / "link" / "karrot"):
        found = intruder(package)
        assert found is not None
        assert (found.is_ours, found.directory) == (False, site)


def _installed(site: Path, folder: str, files: dict[str, str]) -> None:
    (site / "karrot").mkdir(parents=True, exist_ok=True)
    (site / folder).mkdir()
    for name, content in files.items():
        (site / folder / name).write_text(content)


def test_no_file_recommends_installing_the_other_project() -> None:
    told = re.compile(r"pip install (?:-\S+ )*['\"]?karrot(?!-burrow)|(?<![\w-])karrot\[[a-z]")
    places = ["README.md", "CONTRIBUTING.md", "Makefile", "Dockerfile"]
    folders = ["karrot", "docs", "templates", "helm", "examples", "tools"]
    files = [ROOT / each for each in places]
    files += [path for each in folders for path in (ROOT / each).rglob("*") if path.suffix not in {".pyc", ".png"}]
    assert [str(path) for path in files if path.is_file() and told.search(path.read_text(errors="replace"))] == []
