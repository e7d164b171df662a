import importlib.util
from pathlib import Path

import pytest
import sqlglot
from click.testing import CliRunner
from sqlglot import expressions as sql

from karrot.cli import main
from karrot.pipeline.schemas_and_conversions import TABLES
from karrot.render.athena import athena

ROOT = Path(__file__).resolve().parents[2]


def test_the_statements_are_valid_in_athena_and_have_the_columns_of_the_pipelines_tables() -> None:
    text = athena(location="s3a://lag/tables/", database="lag", days=30)  # Athena needs s3://
    database, *tables = (each for each in sqlglot.parse(text, dialect="athena") if each is not None)
    assert (database.args["kind"], database.this.name) == ("DATABASE", "lag")
    told = {table.this.this.name: table for table in tables}
    assert list(told) == list(TABLES)
    for name, table in told.items():
        assert isinstance(table, sql.Create)
        columns = {each.name: each.args["kind"].sql("hive").lower() for each in table.this.expressions}
        assert columns == {field.name: field.dataType.simpleString() for field in TABLES[name]}
        told_of = [each for each in table.find_all(sql.Property) if "value" in each.args]
        properties = {each.name: each.args["value"].name for each in told_of}
        assert properties["storage.location.template"] == f"s3://lag/tables/{name}/day=${{day}}/"
        assert properties["projection.day.range"] == "NOW-30DAYS,NOW+1DAYS"
        [location] = table.find_all(sql.LocationProperty)
        [partition] = table.find_all(sql.PartitionedByProperty)
        assert (location.this.name, partition.this.expressions[0].name) == (f"s3://lag/tables/{name}/", "day")


def test_the_columns_equal_the_output_of_make_docs() -> None:
    spec = importlib.util.spec_from_file_location("tools_athena", ROOT / "tools" / "athena.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "templates" / "athena" / "columns.yaml").read_text() == tool.text(), (
        "run make docs to write it again"
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--tables", "gs://lag"], "--tables is 'gs://lag': it must be s3://bucket/prefix"),
        (["--tables", "s3://lag/it's"], '--tables is "s3://lag/it\'s": it must be s3://bucket/prefix'),
        (["--tables", "s3://l"], "--tables is 's3://l': it must be s3://bucket/prefix, the location of the tables"),
        (["--tables", "s3://lag", "--database", "a-b"], "--database is 'a-b': it must be lower-case letters"),
        (["--tables", "s3://lag", "--days", "0"], "--days is 0: it must be a whole number from 1 to 36500"),
    ],
)
def test_an_option_that_athena_would_refuse_gives_one_sentence(given: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, ["render", "athena", *given])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"karrot: {sentence}")
