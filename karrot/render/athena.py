"""Renders the pipeline's tables as SQL for Amazon Athena."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from karrot.render import validation
from karrot.render.jinja_templates import rendered, templates_dir
from karrot.settings import types
from karrot.settings.types import Bucket

_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Athena:
    """The location of the tables and the name of their database. Raises `ValueError` with one message per line.

    A query without a condition on the day reads the last ``days`` days, by default as many as compact keeps.
    """

    location: str
    database: str = "karrot"
    days: int = 400

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))


def athena(asked: Athena) -> str:
    """The SQL that creates the database and its tables. It needs no PySpark, because a template has the columns."""
    return rendered(
        "athena/tables.sql.j2",
        tables=yaml.safe_load((templates_dir() / "athena" / "columns.yaml").read_text(encoding="utf-8")),
        location=str(Bucket.parse(asked.location)),
        database=asked.database,
        days=asked.days,
    )


def _problems(asked: Athena) -> Iterator[str]:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,127}", asked.database, re.ASCII):
        yield f"--database is {types.quoted(asked.database)}: it must be lower-case letters, digits and underscores"
    try:
        Bucket.parse(asked.location.replace("'", " "))  # a quote would end the string in SQL
    except ValueError:
        yield f"--tables is {types.quoted(asked.location)}: it must be s3://bucket/prefix, the location of the tables"
    yield from validation.whole("--days", asked.days, 1, _MOST_DAYS)
