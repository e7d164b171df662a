"""Renders ``karrot render athena``: the SQL that creates the pipeline's tables in Amazon Athena."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from karrot.render import validation
from karrot.render.templates import environment, templates_dir
from karrot.settings import types

_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Athena:
    """Where the tables are and what their database is called. Raises `ValueError` with a sentence per line.

    ``days`` is how far back a query looks that names no day: what ``karrot pipeline compact`` keeps.
    """

    location: str
    database: str = "karrot"
    days: int = 400

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))


def athena(asked: Athena) -> str:
    """The statements that create the database and every table in it.

    Columns are those of the pipeline's schemas, which ``make docs`` writes down so that this needs no PySpark.
    """
    return (
        environment()
        .get_template("athena/tables.sql.j2")
        .render(tables=_tables(), location=asked.location.rstrip("/"), database=asked.database, days=asked.days)
    )


def _tables() -> Mapping[str, Any]:
    read: Mapping[str, Any] = yaml.safe_load((templates_dir() / "athena" / "columns.yaml").read_text(encoding="utf-8"))
    return read


def _problems(asked: Athena) -> Iterator[str]:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,127}", asked.database, re.ASCII):
        yield f"--database is {types.quoted(asked.database)}: it must be lower-case letters, digits and underscores"
    if not _is_in_s3(asked.location):
        yield f"--location is {types.quoted(asked.location)}: it must be s3://bucket/prefix, where the tables are"
    yield from validation.whole("--days", asked.days, 1, _MOST_DAYS)


def _is_in_s3(location: str) -> bool:
    """Whether it is a place in S3 that a quoted word of SQL can hold."""
    try:
        types.checked(types.place, "--location", location)
    except ValueError:
        return False
    return location.startswith("s3://") and "'" not in location
