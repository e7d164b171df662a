"""Renders the pipeline's tables as SQL for Amazon Athena."""

import re

from karrot.render import validation
from karrot.render.jinja_templates import rendered
from karrot.settings import types
from karrot.settings.types import Bucket


def athena(*, location: str, database: str = "karrot") -> str:
    """Return SQL that creates the database and its tables. Raises `ValueError` with one message per line."""
    problems = []
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
    return rendered("athena/tables.sql.j2", location=str(bucket), database=database)
