import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.schemas_and_conversions import DERIVED
from karrot.pipeline.store.table_files import Tables
from support.pipeline.duckdb_scan import scan
from support.pipeline.expected_tables.all_tables import Rules, tables_of_archive
from support.pipeline.expected_tables.comparison import assert_equal_tables
from tools.history_generator.event_stream import MINUTE_MS
from tools.history_generator.history_scenario import CLUSTERS, consumer_groups, planted
from tools.history_generator.history_writer import Told, read_truth, write_history

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine

_START_MS = int(datetime(2026, 11, 14, tzinfo=UTC).timestamp()) * 1000
_NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "lag.ipynb"
_ENDED_BY = {2: {"close", "recovered", "deleted"}, 5: {"close", "recovered", "new_incident", "deleted", None}}
"""How the incidents end, by the number of groups per cluster."""
OF_COMMITS = {"partition_lag_minute", "rebalances"}


@pytest.fixture(scope="module", params=[2, pytest.param(5, marks=pytest.mark.deep)])
def groups(request: pytest.FixtureRequest) -> int:
    """The number of groups of each cluster."""
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, groups: int) -> Path:
    """Write the history of a day of some groups on two clusters."""
    directory = tmp_path_factory.mktemp("history")
    for cluster in CLUSTERS:
        _write(directory, cluster, groups)
    return directory


def _write(directory: Path, cluster: str, groups: int) -> int:
    archive, truth = directory / "archive" / cluster, directory / f"{cluster}.jsonl"
    return write_history(archive, truth, cluster, start_ms=_START_MS, groups=groups, days=1)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, history: Path) -> Tables:
    """Ingest the archive of that day, and derive."""
    tables = Tables(str(history / "tables"))
    taken = Ingest(spark, EventsFromArchive(str(history / "archive")), tables).run()
    assert (taken.events, taken.missing) == (taken.lines, 0)
    derive(spark, tables, DeriveRules())
    return tables


@pytest.fixture(scope="module")
def expected(history: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables, calculated from the raw segments."""
    return tables_of_archive(history / "archive", Rules())


def test_every_row_of_every_table_equals_the_row_calculated_from_the_raw_segments(
    tables: Tables, expected: dict[str, list[dict[str, Any]]]
) -> None:
    assert_equal_tables(Path(tables.directory), expected)
    assert {name for name, rows in expected.items() if rows} == DERIVED.keys() - OF_COMMITS | {"events", "partitions"}


def test_every_planted_incident_is_in_the_tables_with_its_start_end_worst_status_and_peak(
    spark: SparkSession, groups: int, history: Path, tables: Tables
) -> None:
    truth = [told for cluster in CLUSTERS for told in read_truth(history / f"{cluster}.jsonl")]
    found = tables.read(spark, "incidents").select(
        "incident_id",
        "cluster",
        "consumer",
        F.unix_millis("started_at"),
        F.unix_millis("ended_at"),
        "ended_by",
        "worst_status",
        "peak_lag",
    )
    assert sorted(map(tuple, found.collect())) == sorted(map(_as_in_the_table, truth))
    assert {told.ended_by for told in truth} == _ENDED_BY[groups]
    assert {told.worst_status for told in truth} == {"WARN", "ERR"}


def _as_in_the_table(told: Told) -> tuple[str | int | None, ...]:
    moments = told.started_at_ms, told.ended_at_ms
    return (told.incident_id, told.cluster, told.consumer, *moments, told.ended_by, told.worst_status, told.peak_lag)


def test_only_planted_trouble_causes_incidents(groups: int, history: Path) -> None:
    for cluster in CLUSTERS:
        truth = read_truth(history / f"{cluster}.jsonl")
        expected = {(one.consumer, one.cause) for one in planted(groups, 1) if one.cluster == cluster}
        assert {(told.consumer, told.cause) for told in truth} == expected
        for told in truth:
            assert told.planted_from_ms is not None
            assert told.planted_to_ms is not None
            # Burrow's window has ten commits, here one per minute. A failover starts a new incident.
            assert told.started_at_ms - told.planted_from_ms < 90 * MINUTE_MS
            assert told.ended_at_ms is None or told.ended_at_ms - told.planted_to_ms < 15 * MINUTE_MS


def test_the_queries_of_the_examples_have_answers(tables: Tables) -> None:
    text = (_NOTEBOOK.parent / "queries.sql").read_text(encoding="utf-8")
    asked = dict(re.findall(r"^-- (\w+): .*\n((?:.+\n)+)", text, re.MULTILINE))
    assert asked.keys() == {"skew_minute", "slo_daily", "partition_lag_minute"}
    del asked["partition_lag_minute"]  # an archive has no commits
    for name, query in asked.items():
        query = query.replace(f"delta_scan('tables/{name}')", scan(Path(tables.directory), name))  # noqa: PLW2901
        assert duckdb.execute(query).fetchall(), query


@pytest.mark.deep
def test_the_notebook_of_the_examples_runs_from_top_to_bottom(tables: Tables) -> None:
    cells = json.loads(_NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environ = {**os.environ, "KARROT_TABLES_DIR": tables.directory}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [part.count("\n|") - 1 for part in done.stdout.split("\n\n") if part.strip()]
    assert len(shown) == len([cell for cell in cells if ".show(" in "".join(cell["source"])])
    assert min(shown) > 0, done.stdout


def test_each_group_of_a_cluster_has_its_own_name_and_topic() -> None:
    groups = consumer_groups(CLUSTERS[0], 100, 7, 7)
    assert len({group.name for group in groups}) == 100
    assert len({topic.name for group in groups for topic in group.topics}) == 100


def test_the_same_history_gives_the_same_files(tmp_path: Path) -> None:
    def files(directory: Path) -> dict[str, bytes]:
        directory.mkdir()
        assert _write(directory, "prod-us", 1) == 1440 + 1440 // 10
        paths = (path for path in directory.rglob("*") if path.is_file())
        return {str(path.relative_to(directory)): path.read_bytes() for path in paths}

    written = files(tmp_path / "first")
    assert len([path for path in written if path.endswith(".jsonl.gz")]) == 24
    assert files(tmp_path / "second") == written
