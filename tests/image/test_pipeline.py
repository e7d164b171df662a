"""The image target with Spark runs the pipeline."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.image.buildah import Image
from support.image.runc_container import USER, Container

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

_JOB = (
    "from pyspark.sql import SparkSession; "
    "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate(); "
    "spark.range(7).write.parquet('/data/rows'); "
    "import duckdb; print('rows', duckdb.sql(\"select count(*) from '/data/rows/*.parquet'\").fetchall()[0][0])"
)


def test_the_image_writes_a_table_that_duckdb_reads(
    pipeline: Image, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    config = pipeline.config | {"Entrypoint": ["python"], "Cmd": ["-c", _JOB]}
    with Container(pipeline.root, config, tmp_path / "job", data, {}, temporary=("/tmp",)) as job:
        assert job.wait(300) == 0, job.said.read_text()
    assert "rows 7\n" in job.said.read_text()
    record_property("figures", f"the pipeline's image was built in {pipeline.build_seconds:.0f} s")


def test_the_image_prints_the_list_of_jobs_by_default(pipeline: Image) -> None:
    assert (pipeline.config["Entrypoint"], pipeline.config["Cmd"]) == (["karrot"], ["pipeline", "--help"])
    assert pipeline.config["User"] == f"{USER}:{USER}"
    assert "Healthcheck" not in pipeline.config, "the image of the jobs must have no health check"
