import pytest
import sqlglot
from click.testing import CliRunner
from sqlglot import expressions as sql

from karrot.cli import main
from karrot.pipeline.schemas_and_conversions import TABLES
from karrot.render.athena import athena
from tools.reference import ATHENA, athena_template


def test_each_table_of_the_pipeline_is_a_delta_table_at_its_place_and_the_offsets_are_a_view() -> None:
    text = athena(location="s3a://lag/tables/", database="lag")  # Athena needs s3://
    database, *tables, view = (each for each in sqlglot.parse(text, dialect="athena") if each is not None)
    assert (database.args["kind"], database.this.name) == ("DATABASE", "lag")
    told = {table.this.name: table for table in tables}
    assert list(told) == list(TABLES)
    for name, table in told.items():
        [location] = table.find_all(sql.LocationProperty)
        assert location.this.name == f"s3://lag/tables/{name}/"
        properties = {
            each.name: each.args["value"].name for each in table.find_all(sql.Property) if "value" in each.args
        }
        assert properties == {"table_type": "DELTA"}
    [select] = view.find_all(sql.Select)
    columns = [column.name for column in select.expressions if isinstance(column, sql.Column)]
    assert (view.args["kind"], view.this.sql()) == ("VIEW", '"lag"."offsets_minute"')
    assert {*columns} < {*TABLES["partition_lag_minute"].fieldNames(), "day"}


def test_the_template_has_the_descriptions_of_all_tables_and_columns() -> None:
    assert ATHENA.read_text(encoding="utf-8") == athena_template(), "run make docs to write it again"
    text = athena(location="s3://lag/tables")
    assert "\n-- rebalances: One row per new generation of a group. Key: cluster, consumer, at, generation." in text
    assert "\n--   lag_min bigint: lowest known lag (messages, NULL: unknown)\n" in text
    assert not [line for line in text.splitlines() if line.startswith("--") and ";" in line], "some tools split there"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--tables", "gs://lag"], "--tables is 'gs://lag': it must be s3://bucket/prefix"),
        (["--tables", "s3://lag/it's"], '--tables is "s3://lag/it\'s": it must be s3://bucket/prefix'),
        (["--tables", "s3://l"], "--tables is 's3://l': it must be s3://bucket/prefix, the location of the tables"),
        (["--tables", "s3://lag", "--database", "a-b"], "--database is 'a-b': it must be lower-case letters"),
    ],
)
def test_an_option_that_athena_would_refuse_gives_one_sentence(given: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, ["render", "athena", *given])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"karrot: {sentence}")
