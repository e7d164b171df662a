"""``karrot history``: queries the pipeline's tables within milliseconds and without Spark.

``groups``, ``timeseries`` and ``incidents`` show a time range. ``describe``, ``stale`` and ``risks`` show the state at
one point in time. ``report`` writes a page about some days.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.groups_status_lag import OFFSETS
from karrot.cli.options import Command, day_option, json_option, option_set, read_span, reads
from karrot.cli.print_table import (
    UNKNOWN,
    Column,
    PrintedTable,
    cell,
    json_line,
    print_lines,
    safe,
    shown,
)
from karrot.text import compact_duration, counted_plain, to_minute, to_second

if TYPE_CHECKING:
    from karrot.history.answers_and_errors import Days, GroupDescription, Risk, StalePartition
    from karrot.history.table_queries import GroupNames, History
    from karrot.history.time_ranges import DayRange, TimeRange
    from karrot.settings.types import Place

_DAY = timedelta(days=1)
_LONGEST_REPORT = timedelta(days=3_660)
_LONGEST_S = 86_400
_RANGES_SHOWN = 5
_LATE = timedelta(seconds=300)
"""The age from which a command prints the time of the newest verdict. KARROT_STALE_AFTER has the same default."""

_NO_OWNERS = (
    "the owners are unknown: the group's consumers assign partitions themselves, or use the consumer protocol of "
    "KIP-848, whose member records Karrot does not read"
)


def _read_time(_context: click.Context, _option: click.Parameter, text: str) -> datetime:
    from karrot.history.time_ranges import parse_time

    return valid(lambda: parse_time(text, datetime.now(UTC)))


def _read_step(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    from karrot.history.time_ranges import granularity

    return valid(partial(granularity, text))


def _read_metrics(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Read the names of metrics, which commas separate, and drop repeated names."""
    named = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or ("lag",)


_time_option = partial(click.option, callback=_read_time)
_duration_option = partial(click.option, callback=read_span(10 * 366 * 86_400))
_cluster_option = click.option("--cluster", help="Show only this cluster.")
_group_option = option_set(_cluster_option, click.option("--group", help="Show only this group."))
_required_group_option = option_set(_cluster_option, click.option("--group", required=True, help="The consumer group."))
_limit_option = click.option("--limit", type=click.IntRange(1), help="Show at most this number of rows.")
_look_back_option = _duration_option(
    "--look-back",
    default="7d",
    help="How far before --at to search for a partition's newest offset. A longer search is slower.",
)
_at_option = _time_option("--at", default="now", help="A time: ISO 8601 (UTC), or an age such as 90m or 7d.")
_range_options = option_set(
    _time_option(
        "--from", "since", default="24h", help="Start: a time in ISO 8601 (UTC), or an age such as 90m, 24h or 7d."
    ),
    _time_option("--to", "until", default="now", help="End, not included. The same form as --from."),
)


def _order_option(about: str, *choices: str) -> Callable[[Command], Command]:
    """Return the option ``--order``, whose default is the first choice."""
    return click.option("--order", type=click.Choice(choices), default=choices[0], help=about)


class _Answer(NamedTuple):
    """The fields of --json; without --json, lines for standard output and notes for standard error."""

    fields: Mapping[str, Any]
    lines: Iterable[str]
    notes: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The history, and the values of the options that commands share."""

    history: "History"
    tables: "Place"
    cluster: str | None
    group: str | None
    limit: int | None

    def __str__(self) -> str:
        chosen = "any group" if self.group is None else f"group {self.group!r}"
        return chosen if self.cluster is None else f"{chosen} of cluster {self.cluster!r}"

    @property
    def names(self) -> "GroupNames":
        return {"cluster": self.cluster, "group": self.group}

    def nothing_known(self, what: object, when: str, days: Iterable[date]) -> NotDone:
        """Return the error for a time without data, with the days in the tables."""
        from karrot.history.time_ranges import day_ranges

        there = _in_words(list(day_ranges(days))) or "no day of it"
        return NotDone(_one_line(f"no data about {what} {when}; {self.tables} has {there}"))

    def nothing_then(self, at: datetime) -> NotDone:
        days = self.history.days("commits") or self.history.days("partitions")
        return self.nothing_known(self, f"at {to_minute(at)} UTC or in the look-back before it", days)

    def nothing_in(self, span: "TimeRange", table: str, what: object) -> NotDone:
        when = f"from {to_minute(span.start)} to {to_minute(span.end)} UTC"
        return self.nothing_known(what, when, self.history.days(table, None, **self.names))

    def shown(self, columns: Sequence[Column], found: Sequence[Mapping[str, Any]]) -> PrintedTable:
        return PrintedTable(columns, found[: self.limit])

    def sum_of(self, found: Sequence[object], what: str) -> str:
        """Format the number of results. With a lower limit, add the limit: ``12 incidents (5 shown)``."""
        limited = "" if self.limit is None or self.limit >= len(found) else f" ({self.limit} shown)"
        return counted_plain(len(found), what) + limited


def _query(
    *options: Callable[[Command], Command], short_help: str | None = None, timeout: str = "2m"
) -> Callable[[Callable[..., _Answer]], click.Command]:
    """Make a command of a function that answers a query of the history, whose errors become `Refused`.

    Its own ``options`` are between the first and the last shared ones.
    """
    shared_options = option_set(
        click.option(
            "--tables",
            envvar="KARROT_TABLES_DIR",
            show_envvar=True,
            required=True,
            metavar="PLACE",
            callback=reads(lambda types: types.tables_place),
            help="The folder or s3://bucket/prefix with the tables of karrot pipeline.",
        ),
        click.option(
            "--timeout",
            default=timeout,
            metavar="DURATION",
            callback=read_span(_LONGEST_S),
            help="End with an error if the answer takes longer.",
        ),
        *options,
        json_option("Print one line of JSON instead of a table."),
    )

    def made(answer: Callable[..., _Answer]) -> click.Command:
        @wraps(answer)
        def command(*, timeout: timedelta, as_json: bool, **given: Any) -> None:
            from karrot.history.answers_and_errors import HistoryError, HistoryFailed, NothingToReport, UnclearGroup
            from karrot.history.table_queries import History
            from karrot.runbooks_and_remedies import TABLES_PROBLEMS

            shared = {name: given.pop(name, None) for name in ("tables", "cluster", "group", "limit")}
            try:
                with History(shared["tables"], spills=True) as history, history.limited(timeout.total_seconds()):
                    said = answer(_Asked(history, **shared), **given)
            except UnclearGroup as error:
                raise Refused(f"{_one_line(error)}: choose one with --cluster") from error
            except NothingToReport as error:
                raise NotDone(_one_line(error)) from error
            except HistoryFailed as error:
                raise Refused(_one_line(f"{error} ({error.code}). {TABLES_PROBLEMS[error.code]}")) from error
            except (HistoryError, ValueError, OSError) as error:
                raise Refused(_one_line(error)) from error
            print_lines([json_line(said.fields)] if as_json else said.lines)
            for note in () if as_json else said.notes:
                click.echo(f"karrot: {note}", err=True)

        return click.command(short_help=short_help)(shared_options(command))

    return made


def _spans(since: datetime, until: datetime) -> "tuple[TimeRange, TimeRange]":
    """Return the time range, and its part in the past. Future days do not count as missing."""
    from karrot.history.time_ranges import TimeRange

    span, now = valid(lambda: TimeRange(since, until)), datetime.now(UTC)
    return span, TimeRange(since, min(until, now)) if since < now else span


def _one_line(sentence: object) -> str:
    """Format a sentence as one line for standard error. Control characters in names are escaped."""
    return shown(str(sentence), getattr(sys.stderr, "encoding", None) or "utf-8")


def _in_words(days: "Sequence[DayRange]") -> str:
    """Format days as the first few ranges and the number of later days."""
    first, rest = days[:_RANGES_SHOWN], days[_RANGES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in first)
    return f"{words} and {counted_plain(sum(each.length for each in rest), 'later day')}" if rest else words


def _missing(days: "Days") -> Iterator[str]:
    """Yield a note about the missing days, if there are any."""
    if days.missing:
        missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
        of_days = f"{missing} of {counted_plain(missing + held, 'day')}"
        yield f"the tables do not hold {_in_words(days.missing)} ({of_days})"


def _days_json(days: "Days") -> dict[str, Any]:
    """Convert the days to JSON, each range with its first and last day."""
    return {
        name: [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in ranges]
        for name, ranges in days._asdict().items()
    }


def _with_sum(table: PrintedTable, summary: str) -> Iterator[str]:
    if table.rows:
        yield from table.lines()
    yield summary


def _of_groups(found: "Sequence[StalePartition | Risk]") -> str:
    groups = {(each.cluster, each.group) for each in found}
    return f"{counted_plain(len(found), 'partition')} of {counted_plain(len(groups), 'group')}"


def _when(when: datetime, at: datetime) -> str:
    """Format a time. If its date differs from the date of ``at``, put the date first."""
    return f"{when:%H:%M:%S}" if when.date() == at.date() else to_second(when)


_number = partial(Column, is_number=True)
_KEY = Column("CLUSTER", "cluster"), Column("GROUP", "group")
_PLACE = (*_KEY, Column("TOPIC", "topic"), _number("PARTITION", "partition"))
_GROUPS = (
    *_KEY,
    Column("STATUS", "status"),
    Column("WORST", "worst_status"),
    _number("LAG", "lag"),
    _number("MAX-LAG", "lag_max"),
    _number("MAX-SECONDS", "lag_seconds_max", lambda seconds: cell(None if seconds is None else round(seconds))),
    _number("MINUTES", "minutes"),
    _number("NOT-OK", "minutes_not_ok"),
    _number("INCIDENTS", "incidents"),
    Column("LAST", "last_at", to_minute),
)


@_query(
    _group_option,
    _range_options,
    _limit_option,
    _order_option("Sort by name, or by the largest value first.", "name", "lag", "lag_max", "not_ok", "incidents"),
)
def groups(asked: _Asked, since: datetime, until: datetime, order: str) -> _Answer:
    """List the groups with their lag, minutes not OK and incidents in a range of time.

    If some days are missing in the tables, the command names these days on standard error, and in the field "days" of
    --json.
    """
    from karrot.event import Status

    span, passed = _spans(since, until)
    found = asked.history.groups(span, **asked.names, order=order)
    if not found:
        raise asked.nothing_in(span, "lag_minute", asked)
    days = asked.history.held(passed, "lag_minute", **asked.names)
    table = asked.shown(_GROUPS, [each._asdict() for each in found])
    worst = Counter(each.worst_status for each in found)
    tally = ", ".join(f"{worst[status.name]} {status.name}" for status in reversed(Status) if status.name in worst)
    summary = asked.sum_of(found, "group") + (f"; at worst {tally}" if tally else "")
    return _Answer({"groups": table, "days": _days_json(days)}, _with_sum(table, summary), _missing(days))


def _lasted(row: Mapping[str, Any]) -> str:
    if row["ended_at"] is None:
        return UNKNOWN
    return compact_duration((row["ended_at"] - row["started_at"]).total_seconds())


_INCIDENTS = (
    Column("STARTED", "started_at", to_minute),
    _number("LASTED", text=_lasted),
    *_KEY,
    Column("WORST", "worst_status"),
    _number("PEAK-LAG", "peak_lag"),
    Column("ENDED-BY", "ended_by", lambda by: safe(by or "open")),
    _number("EVENTS", "events"),
    Column("TOPICS", "topics", lambda topics: ", ".join(map(safe, topics)) or UNKNOWN),
    Column("INCIDENT", "incident_id"),
)


@_query(
    _group_option,
    _range_options,
    _limit_option,
    _order_option("The order of the incidents.", "newest", "oldest", "peak_lag", "longest"),
    short_help="List the incidents in a range of time.",
)
def incidents(asked: _Asked, since: datetime, until: datetime, order: str) -> _Answer:
    """List the incidents in a range of time, including the incidents that are still open.

    The exit code is 0 if the tables have verdicts from that time, even if there was no incident. It is 1 if the
    tables have no verdicts from that time, or no verdicts on the requested group or cluster. If some days are missing
    in the tables, the command names these days on standard error, and in the field "days" of --json.
    """
    span, passed = _spans(since, until)
    # Query the days first. A day that derive adds later then counts as missing, not as a day without incidents.
    days = asked.history.held(passed, "incidents", **asked.names)
    found = asked.history.incidents(span, **asked.names, order=order)
    if not (found or days.held):
        raise asked.nothing_in(span, "incidents", f"incidents of {asked}")
    newest, notes = None, [*_missing(days)]
    if days.held:
        last = days.held[-1].last
        newest = asked.history.newest_verdict(last, **asked.names)
        after_held = datetime.combine(last + _DAY, time(), UTC)
        if newest is not None and min(passed.end, after_held) - newest > _LATE:
            notes.append(f"the newest verdict is from {to_minute(newest)} UTC")
    table = asked.shown(_INCIDENTS, [each._asdict() for each in found])
    still_open = sum(each.ended_at is None for each in found)
    summary = asked.sum_of(found, "incident") + (f", {still_open} open" if still_open else "")
    fields = {"incidents": table, "days": _days_json(days), "newest_verdict": newest}
    return _Answer(fields, _with_sum(table, summary), notes)


@_query(
    _required_group_option,
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        callback=_read_metrics,
        metavar="NAME[,...]",
        help="Names of metrics, listed in docs/history.md. Repeatable.  [default: lag]",
    ),
    click.option(
        "--granularity",
        "step",
        default="1m",
        callback=_read_step,
        help="Length of a step in whole minutes, such as 1m, 5m, 1h or 1d.",
    ),
    click.option("--topic", help="For metrics of partitions: use only this topic."),
    click.option("--partition", type=click.IntRange(0), help="With --topic: use only this partition."),
    _range_options,
    _limit_option,
    _order_option("Order of the rows by time.", "asc", "desc"),
)
def timeseries(
    asked: _Asked,
    *,
    since: datetime,
    until: datetime,
    metrics: tuple[str, ...],
    step: timedelta,
    order: str,
    topic: str | None,
    partition: int | None,
) -> _Answer:
    """Print metrics of a group over time, one line for each step.

    A step without data about the group is left out. An unknown value is a dash, never a zero.
    """
    from karrot.history.time_series import METRICS

    if partition is not None and topic is None:
        raise Refused("--partition needs --topic")
    parts = {name: value for name, value in (("topic", topic), ("partition", partition)) if value is not None}
    span, passed = _spans(since, until)
    series = asked.history.timeseries(
        str(asked.group),
        span,
        cluster=asked.cluster,
        metrics=metrics,
        granularity=step,
        parts=parts,
        newest_first=order == "desc",
        limit=asked.limit,
    )
    tables = [METRICS[name].table for name in metrics]
    if not series.points:
        raise asked.nothing_in(span, tables[0], f"{', '.join(metrics)} of {asked}")
    days = asked.history.held(passed, *tables, **asked.names)
    columns = [Column("TIME", "at", to_minute)]
    columns += [Column(name.upper().replace("_", "-"), name, is_number=True) for name in metrics]
    points = [{"at": at} | dict(zip(metrics, values, strict=True)) for at, values in series.points]
    table = PrintedTable(columns, points)
    about = {"cluster": series.cluster, "group": series.group, "granularity_seconds": step // timedelta(seconds=1)}
    return _Answer({**about, "points": table, "days": _days_json(days)}, table.lines(), _missing(days))


def _owner(row: Mapping[str, Any]) -> str:
    """Format the consumer's ID, host and client ID. Kafka writes a host as ``/10.1.2.3``."""
    parts = (row["consumer_id"], (row["host"] or "").removeprefix("/"), row["client_id"])
    return "/".join(safe(each) for each in parts if each) or UNKNOWN


_DESCRIBED = (*OFFSETS, Column("OWNER", text=_owner))


@_query(
    _required_group_option,
    _at_option,
    _look_back_option,
    short_help="Print a group as kafka-consumer-groups --describe does.",
)
def describe(asked: _Asked, at: datetime, look_back: timedelta) -> _Answer:
    """Print a group as kafka-consumer-groups --describe does, now or at a past moment.

    The owner is the consumer's ID, host and client ID. A dash stands for an offset older than
    --look-back, for a log end that was not sampled, or for an owner in a group with KIP-848's protocol.

    If the tables have no records of __consumer_offsets for the group, the values come from the newest event of a resync
    (Burrow's REST API) or of Karrot's own watch (KARROT_WATCH_BOOTSTRAP).
    """
    found = asked.history.describe(str(asked.group), at, cluster=asked.cluster, look_back=look_back)
    if found is None:
        raise asked.nothing_then(at)
    partitions = [each._asdict() for each in found.partitions]
    return _Answer(found._asdict() | {"partitions": partitions}, described_lines(found))


def described_lines(group: "GroupDescription") -> Iterator[str]:
    """Yield a line per partition as in Kafka's tool, a line with the sum, and the reason if no owner is known."""
    table = PrintedTable(_DESCRIBED, [{"group": group.group} | each._asdict() for each in group.partitions])
    yield from table.lines()
    summary = [f"lag {cell(group.lag)}", counted_plain(len(group.partitions), "partition")]
    if group.unknown_lags:
        summary.append(f"{group.unknown_lags} of unknown lag")
    if group.never_committed:
        summary.append(f"{group.never_committed} without an offset")
    if group.members is not None:
        summary.append(counted_plain(group.members, "member"))
    # If the newest offset and log end are old, the printed lag is out of date.
    if committed := [each.committed_at for each in group.partitions if each.committed_at]:
        summary.append(f"last commit {_when(max(committed), group.at)}")
    if looked := [each.looked_at for each in group.partitions if each.looked_at]:
        summary.append(f"log ends of {_when(max(looked), group.at)}")
    yield f"{safe(group.group)} of {safe(group.cluster)}, {to_second(group.at)}: {', '.join(summary)}"
    if group.partitions and group.members is None and all(_owner(row) == UNKNOWN for row in table.rows):
        yield _NO_OWNERS


_STALE = (
    Column("SINCE", "since", to_second),
    _number("STALE-FOR", text=lambda row: compact_duration((row["looked_at"] - row["since"]).total_seconds())),
    *_PLACE,
    _number("CURRENT-OFFSET", "current_offset"),
    _number("LOG-END-OFFSET", "log_end_offset"),
    _number("LAG", "lag"),
)


@_query(
    _group_option,
    _at_option,
    _limit_option,
    _duration_option("--stale-for", default="2m", help="Show partitions that are stale for at least this time."),
    _look_back_option,
    short_help="List the partitions whose committed offset does not move.",
)
def stale(asked: _Asked, at: datetime, stale_for: timedelta, look_back: timedelta) -> _Answer:
    """List the partitions whose committed offset did not move while there were messages to read.

    A partition counts as stale by the same rule as with `karrot pipeline offsets --judge stale`. The exit code is 0
    even if no partition is stale. It is 1 if the group has no commit within --look-back, because its state is then
    unknown.
    """
    found = asked.history.stale(at, stale_for, look_back=look_back, **asked.names)
    if found.committed_at is None:
        raise asked.nothing_then(at)
    table = asked.shown(_STALE, [each._asdict() | {"lag": each.lag} for each in found.partitions])
    summary = f"{_of_groups(found.partitions)} stale, {to_second(at)}: last commit {_when(found.committed_at, at)}, "
    if found.looked_at is None:
        summary += "log ends unknown"
    else:  # old log ends do not show the lag at the requested time
        is_old = at - found.looked_at > stale_for
        summary += f"log ends of {_when(found.looked_at, at)}" + " (no newer ones are known)" * is_old
    return _Answer(found._asdict() | {"partitions": table}, _with_sum(table, summary))


_RISKS = (
    Column("RISK", "kind"),
    Column("AT", "at", to_second),
    *_PLACE,
    _number("OFFSET", "offset"),
    _number("LAG", "lag"),
    _number("MARGIN", "margin"),
    Column("BECAUSE", "because"),
)


@_query(
    _group_option,
    _at_option,
    _limit_option,
    _duration_option("--within", default="24h", help="Show losses that are expected within this time."),
    _duration_option("--retention", default="7d", help="Value of Kafka's offsets.retention.minutes."),
    _duration_option(
        "--look-back", help="How far before --at to search for offsets.  [default: --retention plus one day]"
    ),
)
def risks(
    asked: _Asked,
    *,
    at: datetime,
    within: timedelta,
    retention: timedelta,
    look_back: timedelta | None,
) -> _Answer:
    """List the committed offsets that are lost, or soon will be. The earliest loss comes first.

    There are three risks. "expires": Kafka will delete the offset, because no consumer uses it. "deleted": Kafka
    deleted the offset, and the topic still grows. "log_start": Kafka deletes messages before the group reads them.
    MARGIN is the committed offset minus the log start offset. For example, -5 means that 5 unread messages are deleted.

    The last line names the data that the tables do not have. If the members of groups are missing, "expires" is
    shown only for offsets that have an expiry time from Kafka.
    """
    found = asked.history.risks(at, within=within, retention=retention, look_back=look_back, **asked.names)
    last = found.committed_at
    if last is None:
        raise asked.nothing_then(at)
    table = asked.shown(_RISKS, [each._asdict() for each in found.risks])
    kinds = Counter(each.kind for each in found.risks)
    summary = f"{_of_groups(found.risks)} at risk" + "".join(f", {many} {kind}" for kind, many in sorted(kinds.items()))
    summary += f"; last commit {_when(last, at)}" + "".join(f"; {what} not known" for what in found.unknown)
    unknown = {"unknown": found.unknown} if found.unknown else {}
    return _Answer({"at": at, "committed_at": last, **unknown, "risks": table}, _with_sum(table, summary))


@_query(
    day_option("--from", "first", help="First day (UTC).  [default: six days before --to]"),
    day_option("--to", "last", help="Last day, included.  [default: the newest day in the tables]"),
    click.option(
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("report.html"),
        help="The file to write.",
    ),
    short_help="Write a report about a range of days as an HTML file.",
    timeout="1h",
)
def report(asked: _Asked, first: datetime | None, last: datetime | None, output: Path) -> _Answer:
    """Write a report about a range of days, as a single, self-contained HTML file.

    The report shows the groups that were furthest behind, the incidents, the use of the error budget, topics with skew,
    groups whose capacity runs out, and the next steps. karrot pipeline run --report writes the same report again and
    again.

    The exit code is 1 if the tables have none of these days.
    """
    from karrot.report.html_page import write_report

    if first and last and first > last:
        raise Refused(f"--from {first:%F} is after --to {last:%F}")
    if first and last and last - first >= _LONGEST_REPORT:
        raise Refused(f"--from {first:%F} to {last:%F}: a report has at most {_LONGEST_REPORT.days:,} days")
    headline = write_report(asked.history, output, first and first.date(), last and last.date())
    return _Answer({"output": str(output), "headline": headline}, [safe(f"{output}: {headline}")])


@click.group(commands=[groups, timeseries, incidents, describe, stale, risks, report])
def history() -> None:
    """Query the history of consumer groups in the tables.

    These commands need the extra "history" (DuckDB). They need neither Spark nor a running Karrot. The exit code is 1
    if the tables have no data for the requested time. It is 2 if there are no tables, or for wrong options.
    """
