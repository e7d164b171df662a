"""Opens the pipeline's tables, and defines the options and errors that the ``karrot history`` commands share."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from karrot.cli.errors import Refused, valid
from karrot.cli.options import option_set, value_of
from karrot.cli.table import shown
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.event import TimeRange
    from karrot.history import History


def local_tables(context: click.Context, option: click.Parameter, text: str | None) -> Path | None:
    """A callback that reads the folder of the tables. It refuses a URL, because the tables must be on this machine."""
    from karrot.settings import types

    if text is None:
        return None
    is_variable = context.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT
    return value_of(types.tables, str(option.envvar) if is_variable else option.opts[0], text)


places = option_set(
    click.option(
        "--tables",
        envvar="KARROT_TABLES_DIR",
        show_envvar=True,
        required=True,
        metavar="DIR",
        callback=local_tables,
        help="The local folder with the tables of karrot pipeline.",
    ),
    click.option("--cluster", help="Show only this cluster."),
)


def span_of(since: str, until: str) -> "TimeRange":
    """Read a range of time from two texts. A wrong text ends the command with a message."""
    from karrot.event import TimeRange
    from karrot.history import moment

    now = datetime.now(UTC)
    return valid(lambda: TimeRange(moment(since, now), moment(until, now)))


@contextmanager
def answered(tables: Path, choose_by: str = "--cluster") -> Iterator["History"]:
    """Open the history. The history's errors end the command with a message and an exit code."""
    from karrot.history import History, HistoryError, UnclearGroup

    try:
        with History(tables) as history:
            yield history
    except UnclearGroup as error:
        raise Refused(f"{one_line(error)}: choose one with {choose_by}") from error
    except (HistoryError, ValueError, OSError) as error:
        raise Refused(one_line(error)) from error


def one_line(sentence: object) -> str:
    """A sentence for standard error, on one line. Control characters in names are escaped."""
    return shown(str(sentence), getattr(sys.stderr, "encoding", None) or "utf-8")


def named(cluster: str | None, group: str | None) -> str:
    """The group and the cluster of the request, in words."""
    whom = "any group" if group is None else f"group {group!r}"
    return whom if cluster is None else f"{whom} of cluster {cluster!r}"


def of_all(found: Sequence[object], what: str, limit: int | None) -> str:
    """The number found. If the limit hides some, also the number shown, for example ``12 incidents (5 shown)``."""
    limited = "" if limit is None or limit >= len(found) else f" ({limit} shown)"
    return counted_plain(len(found), what) + limited
