"""Programs that are not Karrot's read the tables: Spark with Delta's own connector, and DuckDB with its extension."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.pipeline_inputs import write_inputs
from e2e.pipeline_stores import Commands, LocalDisk
from e2e.stack.downloads import Downloads, default_cache
from karrot.history.delta_tables import data_files, open_table
from karrot.pipeline.schemas_and_conversions import TABLES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_DUCKDB = """
import json, pathlib, sys
import duckdb, duckdb_ext
[extension] = [file for at in duckdb_ext.__path__ for file in pathlib.Path(at).rglob("delta.duckdb_extension")]
duckdb.execute(f"LOAD '{extension}'")
ask = "SELECT count(*), count(DISTINCT day)::INT FROM delta_scan('{}')"
print(json.dumps({pathlib.Path(each).name: duckdb.execute(ask.format(each)).fetchone() for each in sys.argv[1:]}))
"""
_SPARK = """
import json, pathlib, sys
from pyspark.sql import SparkSession
conf = {
    "spark.jars": sys.argv[1],
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
found = {}
for each in sys.argv[2:]:
    rows = spark.read.format("delta").load(each)
    assert all(column.metadata["comment"] for column in rows.schema), rows.schema.json()
    found[pathlib.Path(each).name] = [rows.count(), rows.select("day").distinct().count()]
print(json.dumps(found))
spark.stop()
"""


def _printed(python: str | Path, program: str, *arguments: str) -> dict[str, list[int]]:
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_spark_with_deltas_connector_and_duckdb_find_the_rows_and_days_of_every_table(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    tables = tmp_path / "tables"
    with Commands.started(LocalDisk(tmp_path), tmp_path / "spark.log") as commands:
        at = ("--tables", str(tables))
        sources = ("--input", str(tmp_path / "records"), "--ends-input", str(tmp_path / "ends"))
        commands.run("events", *at, "--archive", str(tmp_path / "first"))
        commands.run("derive", *at)
        commands.run("events", *at, "--archive", str(tmp_path / "second"))
        commands.run("offsets", *at, "--cluster", "prod-eu", "--source", "parquet", *sources)
        commands.run("derive", *at)
        commands.run("compact", *at, "--keep", "3650d")
    ours = {}
    for name in TABLES:
        if table := open_table(str(tables / name), {}):
            files = data_files(table)
            ours[name] = [sum(file.rows for file in files), len({file.day for file in files})]
    assert len(ours) > 12
    places, downloads = [str(tables / name) for name in ours], Downloads(default_cache())
    assert _printed(downloads.duckdb_with_delta(), _DUCKDB, *places) == ours
    assert _printed(sys.executable, _SPARK, ",".join(map(str, downloads.delta())), *places) == ours
