"""Reads the options of the commands for one point in time, and formats the times and errors that they print."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.errors import NotDone, valid
from karrot.cli.history.open_tables import named, one_line
from karrot.cli.history.range_request import in_words
from karrot.cli.options import option_set, read_span
from karrot.text import to_minute, to_second

if TYPE_CHECKING:
    from karrot.settings.storage_place import Place

moment_options = option_set(
    click.option("--at", default="now", show_default=True, help="A time: ISO 8601 (UTC), or an age such as 90m or 7d."),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table."),
)
limit_option = click.option("--limit", type=click.IntRange(1), help="Show at most this number of partitions.")


read_duration = read_span(10 * 366 * 86_400)
LOOK_BACK_HELP = "How far before --at to search for a partition's newest offset. A longer search is slower."


def look_back_option(default: str | None, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--look-back``, with ``text`` as its help."""
    return click.option("--look-back", default=default, show_default=bool(default), callback=read_duration, help=text)


@dataclass(frozen=True, slots=True)
class MomentRequest:
    """The values of the options that the commands about one moment share."""

    tables: "Place"
    cluster: str | None
    group: str | None
    at: datetime
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Read the common options. Raises Refused."""
        from karrot.history import moment

        at = valid(lambda: moment(given["at"], datetime.now(UTC)))
        return cls(given["tables"], given["cluster"], given["group"], at, given["as_json"])


def nothing_known_at(request: MomentRequest, days: Sequence[date]) -> NotDone:
    """The error for a moment without data. Its message names the days that the tables have."""
    from karrot.history import day_ranges

    return NotDone(
        one_line(
            f"no data about {named(request.cluster, request.group)} at {to_minute(request.at)} UTC or in the "
            f"look-back before it; {request.tables} has {in_words(list(day_ranges(days)))}"
        )
    )


def when(moment: datetime, at: datetime) -> str:
    """A time. The date comes first if it differs from the date of ``at``."""
    return f"{moment:%H:%M:%S}" if moment.date() == at.date() else to_second(moment)
