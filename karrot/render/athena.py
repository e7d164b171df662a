"""Renders the pipeline's tables as SQL for Amazon Athena."""

import re

import yaml

from karrot.render import validation
from karrot.render.jinja_templates import rendered, templates_dir
from karrot.settings import types
from karrot.settings.types import Bucket

_MOST_DAYS = 36_500


def athena(*, location: str, database: str = "karrot", days: int = 400) -> str:
    """Return SQL that creates the database and its tables. A template has the columns, so PySpark is not needed.

    A query without a condition on ``day`` reads the last ``days`` days. Compact keeps the same number of days by
    default. Raises `ValueError` with one message per line.
    """
    problems = [*validation.whole("--days", days, 1, _MOST_DAYS)]
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,127}", database, re.ASCII):
        problems.append(
            f"--database is {types.quoted(database)}: it must be lower-case letters, digits and underscores"
        )
    try:
        bucket = Bucket.parse(location.replace("'", " "))  # a quote would end the SQL string
    except ValueError:
        problems.append(
            f"--tables is {types.quoted(location)}: it must be s3://bucket/prefix, the location of the tables"
        )
    validation.refuse(problems)
    tables = yaml.safe_load((templates_dir() / "athena" / "columns.yaml").read_text(encoding="utf-8"))
    return rendered("athena/tables.sql.j2", tables=tables, location=str(bucket), database=database, days=days)
