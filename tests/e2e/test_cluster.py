"""Every pipeline command on Spark's own cluster, by the commands of docs/pipeline-sizing.md, with and without kill -9.

The workers' Python has numpy, pyarrow and msgspec, but not Karrot. The results are compared with a local run.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from e2e.figures import Figures
from e2e.pipeline_stores import Commands, LocalDisk
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers
from e2e.stack.spark_cluster import QUICK_JVM, SparkCluster
from e2e.stack.stack import NEWEST_KAFKA
from e2e.waiting import wait_for
from support.pipeline.duckdb_scan import scan
from support.pipeline.table_files import files_of
from support.service.free_ports import free_ports
from tools.history_generator.history_scenario import CLUSTERS
from tools.history_generator.history_writer import write_history

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
_PAGE = ROOT / "docs" / "pipeline-sizing.md"
_BLOCK = re.compile(r"^```bash\n(export PYSPARK_DRIVER_PYTHON.*?)^```", re.MULTILINE | re.DOTALL)
_PACKAGES = re.compile(r"--packages [^)\s]+")
_ENOUGH_S = 600.0

Local = Callable[..., str]
"""Runs the same commands without a cluster, and returns what they print."""


class Ended(NamedTuple):
    """The result of a command. Spark prints the standard error of Python to standard output."""

    code: int
    stdout: str
    stderr: str


class Submitting:
    """The page's commands, in a folder with the script and ``karrot-burrow.zip``."""

    def __init__(self, servers: Servers, cluster: SparkCluster, brokers: str, jars: str, folder: Path) -> None:
        self._servers = servers
        self._number = 0
        self.cluster = cluster
        self.folder = folder
        found = _BLOCK.search(_PAGE.read_text(encoding="utf-8"))
        assert found is not None
        page = _PACKAGES.sub(f"--jars {jars}", found[1])
        for said, here in {
            "/opt/karrot/bin": str(Path(sys.executable).parent),
            "/opt/spark-worker/bin/python": str(cluster.python),
            "spark://spark:7077": cluster.url,
            "kafka:9092": brokers,
            "/mnt/lag": str(folder),
        }.items():
            assert said in page
            page = page.replace(said, here)
        self._preamble, commands = page.split("\n\n", 1)
        named = re.compile(r"karrot_pipeline\.py (?:run .*--only )?(\w+)")
        self.commands = {found[1]: line for line in commands.splitlines() if (found := named.search(line))}

    def start(self, command: str, more: str = "") -> Server:
        """Start a command of the page, with more options behind it."""
        return self.start_line(f"{self.commands[command]} {more}")

    def start_line(self, line: str) -> Server:
        self._number += 1
        (self.folder / f"{self._number}.out").touch()
        script = self.folder / f"{self._number}.sh"
        script.write_text(f"cd {self.folder}\n{self._preamble}\nexec >{self._number}.out\n{line}\n")
        quick = {"SPARK_CONF_DIR": self.folder / "conf", "SPARK_LOCAL_IP": "127.0.0.1"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = [f"PATH={path}", *(f"{key}={value}" for key, value in quick.items())]
        return self._servers.start(f"submit-{self._number}", ["env", *environment, "bash", script])

    def ended(self, job: Server) -> Ended:
        """Wait for the end of a command."""
        code = job.wait(_ENOUGH_S)
        return Ended(code, self.printed(job), job.log.read_text())

    def printed(self, job: Server) -> str:
        """Return what a command has printed to its standard output."""
        return (self.folder / f"{job.name.removeprefix('submit-')}.out").read_text()

    def run(self, command: str, more: str = "") -> str:
        """Run a command of the page that must succeed, and return its standard output."""
        ended = self.ended(self.start(command, more))
        assert ended.code == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all machines of the cluster mount, with the archive of one day."""
    place = tmp_path_factory.mktemp("lag")
    yesterday = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    for cluster in CLUSTERS:
        start_ms = int(yesterday.timestamp()) * 1000
        write_history(place / "all" / cluster, place / f"truth-{cluster}", cluster, start_ms=start_ms, groups=5, days=1)
    shutil.copytree(place / "all" / CLUSTERS[0], place / "archive" / CLUSTERS[0])
    shutil.copy(ROOT / "examples" / "spark-submit" / "karrot_pipeline.py", place)
    subprocess.run(
        [Path(sys.executable).with_name("hatchling"), "build", "-t", "wheel", "-d", place],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = place.glob("*.whl")
    wheel.rename(place / "karrot-burrow.zip")
    (place / "conf").mkdir()
    (place / "conf" / "spark-defaults.conf").write_text(
        f"spark.driver.defaultJavaOptions {QUICK_JVM}\n"
        f"spark.executor.defaultJavaOptions {QUICK_JVM}\n"
        "spark.ui.enabled false\nspark.sql.shuffle.partitions 4\n"
    )
    return place


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Return the place for all servers of this file. All of them end with it."""
    with Servers(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture(scope="module")
def kafka(servers: Servers) -> Kafka:
    """Start a broker."""
    broker = Kafka(servers, Downloads(default_cache()).jars(NEWEST_KAFKA).kafka, NEWEST_KAFKA, free_ports(2))
    servers.directory.mkdir(parents=True, exist_ok=True)
    broker.start()
    return broker


@pytest.fixture(scope="module")
def jars() -> str:
    """Return the files of Spark's Kafka connector."""
    return ",".join(map(str, Downloads(default_cache()).spark_kafka()))


@pytest.fixture(scope="module")
def page(servers: Servers, kafka: Kafka, jars: str, folder: Path) -> Submitting:
    """Start the cluster, and return the page's commands for it."""
    cluster = SparkCluster(servers)
    cluster.start()
    return Submitting(servers, cluster, kafka.bootstrap, jars, folder)


@pytest.fixture(scope="module")
def local(folder: Path, jars: str) -> Iterator[Local]:
    """Start the process for local runs."""
    store = LocalDisk(folder, spark_conf={"spark.jars": jars})
    with Commands.started(store, folder / "local.log") as commands:
        yield lambda *command: commands.streams(*map(str, command))[0]


def rows(tables: Path, name: str) -> str:
    """Return a query for the rows of a table, without the names of its folders."""
    return f"SELECT COLUMNS(lambda c: c NOT IN ('batch_id', 'piece')) FROM {scan(tables, name)}"


def count(query: str) -> int:
    [[number]] = duckdb.execute(f"SELECT count(*) FROM ({query})").fetchall()
    return int(number)


def assert_equal(one: Path, other: Path, names: Sequence[str]) -> int:
    """Compare tables row by row, and return how many rows they have."""
    differ = {}
    for name in names:
        here, there = rows(one, name), rows(other, name)
        differ[name] = (count(f"{here} EXCEPT ALL {there}"), count(f"{there} EXCEPT ALL {here}"))
    assert differ == dict.fromkeys(names, (0, 0))
    return sum(count(rows(one, name)) for name in names)


def with_rows(tables: Path) -> list[str]:
    return sorted(log.parent.name for log in tables.glob("[!._]*/_delta_log") if files_of(tables, log.parent.name))


def test_the_workers_have_no_karrot(page: Submitting) -> None:
    modules = "import msgspec, numpy, pyarrow, importlib.util as u; print(u.find_spec('karrot'), u.find_spec('pandas'))"
    printed = subprocess.run([page.cluster.python, "-I", "-c", modules], capture_output=True, text=True, check=True)
    assert printed.stdout == "None None\n"


def test_a_setting_behind_the_command_is_refused(page: Submitting) -> None:
    late = page.ended(page.start("derive", "--conf spark.driver.memory=4g"))
    assert late.code == 2
    assert late.stdout.endswith("write spark-submit --conf spark.driver.memory=… karrot_pipeline.py …\n")


def test_ingest_and_derive_equal_a_local_run_although_an_executor_and_a_driver_are_killed(
    page: Submitting, local: Local, figures: Figures
) -> None:
    tables, alone = page.folder / "tables", page.folder / "local"
    batch = tables / "_checkpoints" / "ingest"
    job = page.start("events")
    wait_for((batch / "offsets" / "0").exists, _ENOUGH_S)
    killed = page.cluster.executors()[0]
    os.kill(killed, signal.SIGKILL)
    assert not (batch / "commits" / "0").exists()
    ended = page.ended(job)
    assert ended.code == 0, ended.stderr
    assert any("exitStatus 137" in worker.log.read_text() for worker in page.cluster.workers)
    assert ended.stdout == local("events", "--archive", page.folder / "archive", "--tables", alone)

    job = page.start("derive")
    wait_for(lambda: bool(files_of(tables, "lag_minute")), _ENOUGH_S)
    job.kill()
    assert json.loads((tables / "_derived.json").read_text())["unfinished"]
    wait_for(lambda: not page.cluster.executors())
    page.run("run", "--once")
    assert page.run("derive") == "nothing changed\n"
    local("derive", "--tables", alone)

    names = with_rows(alone)
    assert {"events", "partitions", "incidents", "slo_daily"} <= set(names)
    assert with_rows(tables) == names
    figures.add("rows on the cluster that equal those of a local run", assert_equal(alone, tables, names))


def test_compacted_tables_and_later_segments_have_the_same_events(page: Submitting, local: Local) -> None:
    tables, alone = page.folder / "tables", page.folder / "local"
    page.run("compact")
    assert_equal(alone, tables, ["events", "partitions"])
    shutil.copytree(page.folder / "all" / CLUSTERS[1], page.folder / "archive" / CLUSTERS[1])
    page.run("events")
    local("events", "--archive", page.folder / "archive", "--tables", alone)
    assert_equal(alone, tables, ["events", "partitions"])


def test_offsets_of_a_killed_driver_are_read_once_and_python_on_the_workers_judges_them(
    page: Submitting, local: Local, kafka: Kafka
) -> None:
    tables, alone = page.folder / "tables", page.folder / "local"
    make_topic(kafka, "orders")
    commit(kafka, range(1, 11))
    job = page.start("offsets", "--follow --every 1s --ends-every 1s")
    wait_for(lambda: bool(files_of(tables, "commits")) and len(files_of(tables, "ends")) > 2, _ENOUGH_S)
    commit(kafka, range(11, 21))
    job.kill()
    commit(kafka, range(21, 26))
    page.run("offsets", "--json")
    local("offsets", "--bootstrap-servers", kafka.bootstrap, "--cluster", "prod", "--tables", alone)
    assert_equal(alone, tables, ["commits", "members"] if "members" in with_rows(alone) else ["commits"])
    assert count(rows(tables, "commits")) >= 50

    rules = ("--rules", "burrow:", "--rules", "short:intervals=5", "--every", "1s")
    assert page.run("replay", "--every 1s") == local("replay", "--tables", tables, *rules)
    source = ("--bootstrap-servers", kafka.bootstrap, "--cluster", "prod", "--once")
    stale = ("--judge", "stale", "--stale-for", "1s", "--checkpoint", page.folder / "local-stale", "--tables", tables)
    alerts = alerted(page.run("offsets", "--judge stale --stale-for 1s --once"))
    assert [group for group, _ in alerts] == ["billing", "billing"]
    assert alerts == alerted(local("offsets", *source, *stale))

    burrow = ("--judge", "burrow", "--tables", alone)
    here = judged(local("offsets", *source, *burrow))
    assert (
        judged(page.run("offsets", "--judge burrow --once"))
        == here
        == [("billing", "orders", 0, 25, 25), ("billing", "orders", 1, 25, 25)]
    )


def test_verdicts_and_their_incident_continue_although_an_executor_is_killed(page: Submitting, kafka: Kafka) -> None:
    make_topic(kafka, "payments")
    commit(kafka, range(1, 6), "waiting", "payments")
    job = page.start("offsets", "--judge burrow --follow --every 2s --ends-every 1s --group-allowlist ^waiting$")

    def verdicts() -> list[tuple[str, str]]:
        assert job.exit_code is None, job.tail()
        lines = page.printed(job).splitlines(keepends=True)
        events = [json.loads(line)["Event"] for line in lines if line.startswith("{") and line.endswith("\n")]
        assert {each["Group"] for each in events} <= {"waiting"}
        return [(each["Result"]["status"], each["ID"]) for each in events]

    wait_for(lambda: any(status == "ERR" for status, _ in verdicts()), _ENOUGH_S)
    killed = page.cluster.executors()
    os.kill(killed[0], signal.SIGKILL)
    before = len(verdicts())
    wait_for(lambda: len(verdicts()) > before + 2, _ENOUGH_S)
    wait_for(lambda: len({*page.cluster.executors()} - {*killed}) == 1)
    assert len({one for status, one in verdicts() if status == "ERR"}) == 1
    job.kill()


def alerted(said: str) -> list[tuple[str, str]]:
    """The groups and the ids of the alerts."""
    alerts = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [(each["group"], each["id"]) for each in alerts]


def judged(said: str) -> list[tuple[str, str, int, int, int]]:
    """The listed partitions of the verdicts: group, topic, partition, committed offset and lag."""
    results = [json.loads(line)["Event"]["Result"] for line in said.splitlines() if line.startswith("{")]
    return sorted(
        (each["group"], one["topic"], one["partition"], one["end"]["offset"], one["current_lag"])
        for each in results
        for one in each["partitions"]
    )


def make_topic(kafka: Kafka, name: str) -> None:
    """Create a topic with two partitions and 50 messages in each."""
    kafka.wait()
    kafka.create_topic(name, 2)
    producer = Producer(kafka.client)
    for partition in (0, 1):
        for _ in range(50):
            producer.produce(name, b"a message", partition=partition)
    assert producer.flush(30) == 0


def commit(kafka: Kafka, offsets: Iterable[int], group: str = "billing", topic: str = "orders") -> None:
    member = Consumer(kafka.client | {"group.id": group})
    for offset in offsets:
        places = [TopicPartition(topic, partition, offset) for partition in (0, 1)]
        member.commit(offsets=places, asynchronous=False)
    member.close()
