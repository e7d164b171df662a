"""``karrot history describe``, ``stale`` and ``risks``: where groups stand, by Kafka's own offsets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import click

from karrot.cli.errors import NotDone, valid
from karrot.cli.history.open_tables import answered, named, one_line, places, show
from karrot.cli.options import put_on, read_span

__all__ = ["describe", "risks", "stale"]

_OPTIONS = (
    click.option("--at", default="now", show_default=True, help="As of then: ISO 8601 (UTC), or so long ago: 90m, 7d."),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of a table."),
)
_limited = click.option("--limit", type=click.IntRange(1), help="So many partitions at the most.")


_span = read_span(10 * 366 * 86_400)


def _looking_back(default: str | None, told: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--look-back", default=default, show_default=bool(default), callback=_span, help=told)


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    return put_on(command, *_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What each of these commands was asked."""

    tables: Path
    cluster: str | None
    group: str | None
    at: datetime
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        from karrot.history import moment

        at = valid(lambda: moment(given["at"], datetime.now(UTC)))
        return cls(given["tables"], given["cluster"], given["group"], at, given["as_json"])


def _unknown(asked: _Asked, days: Sequence[date]) -> NotDone:
    from karrot.cli.history.groups import in_words
    from karrot.history import stretches

    return NotDone(
        one_line(
            f"nothing is known of {named(asked.cluster, asked.group)} at {asked.at:%Y-%m-%d %H:%M} UTC, nor from so "
            f"long before; {asked.tables} has {in_words(list(stretches(days)))}"
        )
    )


_WEEK = "How far before --at to look for the newest offset of a partition; the longer, the slower."


@click.command()
@places
@click.option("--group", required=True, help="The group.")
@_asking
@_looking_back("7d", _WEEK)
def describe(look_back: timedelta, **given: Any) -> None:
    """Print a group as kafka-consumer-groups --describe does, as of now or any past moment.

    The owner is the consumer's id, host and client id. A dash is what is not known: an offset older than --look-back, a
    log end that nobody looked at, an owner under the consumer protocol of KIP-848. Of a group whose offsets were not
    read from Kafka it is what resync or watch last said.
    """
    from karrot.cli.history.risks import described_json, described_table

    asked = _Asked.of(given)
    with answered(asked.tables) as opened:
        found = opened.describe(asked.group or "", asked.at, cluster=asked.cluster, look_back=look_back)
        if found is None:
            raise _unknown(asked, opened.days("commits") or opened.days("partitions"))
    show(described_json(found) if asked.as_json else described_table(found))


@click.command()
@places
@click.option("--group", help="This group alone.")
@_asking
@_limited
@click.option("--for", "length", default="2m", show_default=True, callback=_span, help="Stale for at least so long.")
@_looking_back("7d", _WEEK)
def stale(length: timedelta, look_back: timedelta, limit: int | None, **given: Any) -> None:
    """List the partitions whose committed offset stood still while there was something to read.

    The rule is that of karrot pipeline stale. That there is none is an answer: exit code 0. Of a
    group without any commit in --look-back nothing is known: exit code 1.
    """
    from karrot.cli.history.risks import stale_json, stale_table

    asked = _Asked.of(given)
    with answered(asked.tables) as opened:
        found = opened.stale(asked.at, length, cluster=asked.cluster, group=asked.group, look_back=look_back)
        if not (
            found.partitions
            or opened.last_commit(asked.at, cluster=asked.cluster, group=asked.group, look_back=look_back)
        ):
            raise _unknown(asked, opened.days("commits"))
    show(stale_json(found, limit) if asked.as_json else stale_table(found, length, limit))


@click.command()
@places
@click.option("--group", help="This group alone.")
@_asking
@_limited
@click.option("--within", default="24h", show_default=True, callback=_span, help="What happens in that time.")
@click.option("--retention", default="7d", show_default=True, callback=_span, help="Kafka's offsets.retention.minutes.")
@_looking_back(None, "How far before --at to look for offsets.  [default: --retention and a day]")
def risks(
    within: timedelta, retention: timedelta, look_back: timedelta | None, limit: int | None, **given: Any
) -> None:
    """List the committed offsets that are lost or will be, the next one first.

    expires: Kafka will delete it, as no consumer keeps it. deleted: it was, and the topic still grows. log_start: Kafka
    deletes messages before they are read; a MARGIN below 0 says how many. The last line names what no table knows:
    without the members of groups, expires is what Kafka itself wrote into an offset.
    """
    from karrot.cli.history.risks import risks_json, risks_table

    asked = _Asked.of(given)
    with answered(asked.tables) as opened:
        found = opened.risks(
            asked.at,
            within=within,
            retention=retention,
            cluster=asked.cluster,
            group=asked.group,
            look_back=look_back,
        )
        last = opened.last_commit(
            asked.at, cluster=asked.cluster, group=asked.group, look_back=look_back or retention + timedelta(days=1)
        )
        if not (found.risks or last):
            raise _unknown(asked, opened.days("commits"))
    show(risks_json(found, asked.at, last, limit) if asked.as_json else risks_table(found, asked.at, last, limit))
