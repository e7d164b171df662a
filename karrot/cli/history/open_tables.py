"""Opens the pipeline's tables, and defines the options and errors that the ``karrot history`` commands share."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from karrot.cli.errors import Refused
from karrot.cli.options import option_set, read_span, reads
from karrot.cli.table import shown
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.event import DayRange
    from karrot.history.table_queries import History
    from karrot.settings.types import Place

_TIMEOUT = "karrot.history.timeout"
_LONGEST_S = 86_400
_RANGES_SHOWN = 5


def _keep_timeout(context: click.Context, option: click.Parameter, text: str) -> None:
    """A callback that keeps the time limit in the context, where `answered` finds it."""
    context.meta[_TIMEOUT] = read_span(_LONGEST_S)(context, option, text)


places = option_set(
    click.option(
        "--tables",
        envvar="KARROT_TABLES_DIR",
        show_envvar=True,
        required=True,
        metavar="PLACE",
        callback=reads(lambda types: types.place),
        help="The folder or s3://bucket/prefix with the tables of karrot pipeline.",
    ),
    click.option("--cluster", help="Show only this cluster."),
    click.option(
        "--timeout",
        default="2m",
        metavar="DURATION",
        callback=_keep_timeout,
        expose_value=False,
        help="End with an error if the answer takes longer.",
    ),
)


@contextmanager
def answered(tables: "Place") -> Iterator["History"]:
    """Open the history. The history's errors end the command with a message and an exit code."""
    from karrot.history.results import HistoryError, HistoryFailed, UnclearGroup
    from karrot.history.table_queries import History
    from karrot.known_problems import TABLES_PROBLEMS

    timeout: timedelta = click.get_current_context().meta[_TIMEOUT]
    try:
        with History(tables) as history, history.limited(timeout.total_seconds()):
            yield history
    except UnclearGroup as error:
        raise Refused(f"{one_line(error)}: choose one with --cluster") from error
    except HistoryFailed as error:
        raise Refused(one_line(f"{error} ({error.code}). {TABLES_PROBLEMS[error.code]}")) from error
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


def dates_in_words(days: Iterable[date]) -> str:
    """Days in order, in words."""
    from karrot.history.held_days import day_ranges

    return in_words(list(day_ranges(days)))


def in_words(days: "Sequence[DayRange]") -> str:
    """Days in words: the first few ranges, and the number of later days."""
    shown, rest = days[:_RANGES_SHOWN], days[_RANGES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in shown)
    return f"{words} and {counted_plain(sum(each.length for each in rest), 'later day')}" if rest else words
