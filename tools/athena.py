"""Writes ``templates/athena/columns.yaml`` from the pipeline's schemas. It is part of ``make docs``.

Because of this file, ``karrot render athena`` needs no PySpark.
"""

from pathlib import Path

import yaml

from karrot.pipeline.schemas_and_conversions import OFFSETS, STREAMED, TABLES

FILE = Path(__file__).resolve().parents[1] / "templates" / "athena" / "columns.yaml"


def text() -> str:
    """Return the file's text. Its types are Hive's types. Spark's simple types have the same names as Hive's."""
    told = {
        name: {
            "written_by": _job(name),
            "columns": {field.name: field.dataType.simpleString() for field in schema},
        }
        for name, schema in TABLES.items()
    }
    head = "# The columns of the pipeline's tables, as Athena and Hive call their types. make docs writes it.\n"
    return head + yaml.safe_dump(told, sort_keys=False, default_flow_style=None, width=120)


def _job(table: str) -> str:
    if table in OFFSETS:
        return "offsets"
    return "events" if table in STREAMED else "derive"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
