"""Lists the tables and columns of an event log, so that its rows can be copied as they are, without decoding them.

A row is copied with its checksum. So a damaged row stays damaged in the copy, and readers report it there too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from karrot.eventlog.rows import EVENT_FIELDS, GROUP_FIELDS, Row

WRONG_CHECKSUM = -1
"""A checksum that no undamaged row has: checksums are not negative."""


LONGEST_KEY = 2600
"""The most bytes of a key. An index of PostgreSQL holds 2,704 bytes, with what it adds to the key."""


class ColumnKind(Enum):
    """The values of a column. A copy handles every text as bytes, because the bytes may be damaged.

    ``NAME`` is text in SQLite and ``bytea`` in PostgreSQL. ``TEXT`` is text in both: it is UTF-8 without NUL.
    """

    INTEGER = auto()
    FLAG = auto()
    REAL = auto()
    BYTES = auto()
    NAME = auto()
    TEXT = auto()


_INTEGER, _FLAG, _REAL, _BYTES, _NAME, _TEXT = ColumnKind
_BLANK: Mapping[ColumnKind, Any] = {_INTEGER: 0, _FLAG: 0, _REAL: 0.0, _BYTES: b"", _NAME: b"", _TEXT: b""}


class CopiedTable(NamedTuple):
    """A table: its columns, the columns that may be NULL, and the columns that order its rows."""

    name: str
    columns: Mapping[str, ColumnKind]
    order: str
    nullable: tuple[str, ...] = ()

    def fitted(self, row: Row) -> Row | None:
        """The row if every database can hold it.

        A damaged file of SQLite can hold NULL where no NULL is allowed, and a text that is not UTF-8. Then the result
        is a row that readers report as damaged, or ``None`` if the table has no checksums. It is also ``None`` for a
        key beyond `LONGEST_KEY`, which SQLite can hold: a name that an older Karrot has stored.
        """
        keys = self.order.split(", ")
        texts = (value for name, value in zip(self.columns, row, strict=True) if name in keys)
        if sum(len(value) for value in texts if isinstance(value, bytes)) > LONGEST_KEY:
            return None
        unfit = {
            place: _BLANK[kind]
            for place, (value, (name, kind)) in enumerate(zip(row, self.columns.items(), strict=True))
            if (value is None and name not in self.nullable) or (kind is _TEXT and value and not _is_text(value))
        }
        if not unfit:
            return row
        if "crc" not in self.columns:
            return None
        checksum = list(self.columns).index("crc")
        return [unfit.get(place, WRONG_CHECKSUM if place == checksum else value) for place, value in enumerate(row)]


EVENTS = CopiedTable(
    "events",
    dict(zip(EVENT_FIELDS, (*[_INTEGER] * 4, _NAME, _INTEGER, _BYTES, _BYTES), strict=True)) | {"previous": _INTEGER},
    order="seq",
    nullable=("age", "previous"),
)
"""The events. Their columns begin with `EVENT_FIELDS`."""

GROUPS = CopiedTable(
    "groups",
    dict(zip(GROUP_FIELDS, (*[_NAME] * 2, *[_INTEGER] * 3, _FLAG, _INTEGER, _BYTES), strict=True)) | {"gone": _FLAG},
    order="cluster, consumer",
)
"""The newest state of each group, with its incidents. Its columns begin with `GROUP_FIELDS`."""

STATE: tuple[CopiedTable, ...] = (
    GROUPS,
    CopiedTable("heard", {"cluster": _NAME, "at_ms": _INTEGER}, order="cluster"),
    CopiedTable("counters", {"name": _TEXT, "labels": _TEXT, "value": _REAL}, order="name, labels"),
    CopiedTable(
        "reporters",
        {"name": _TEXT, "log_id": _TEXT, "seq": _INTEGER, "state": _BYTES},
        order="name",
        nullable=("log_id", "seq"),
    ),
    CopiedTable("notes", {"reporter": _TEXT, "name": _TEXT, "value": _BYTES}, order="reporter, name"),
    CopiedTable(
        "rejects",
        {"received_at_ms": _INTEGER, "code": _NAME, "detail": _NAME, "source": _NAME, "body": _BYTES},
        order="id",
    ),
    CopiedTable("posts", {"digest": _BYTES, "seq": _INTEGER, "log_time_ms": _INTEGER}, order="digest"),
    CopiedTable(
        "log_ends",
        {"cluster": _NAME, "topic": _NAME, "partition": _INTEGER, "touched_ms": _INTEGER, "samples": _BYTES},
        order="cluster, topic, partition",
    ),
)
"""Every table except the events: what changes with each commit."""


class LogHead(NamedTuple):
    """What a log knows about itself. ``log_ms`` is its time now, and ``committed_ms`` its time at the newest commit.

    ``first_seq`` is the oldest event, and ``last_seq`` the newest that was ever stored. A log without events has a
    ``first_seq`` after its ``last_seq``.
    """

    log_id: str
    first_seq: int
    last_seq: int
    groups: int
    log_end_bytes: int
    log_ms: int
    committed_ms: int


class CopySource(Protocol):
    """The log that is copied. Every method raises `LogUnavailableError`."""

    def head(self) -> LogHead:
        """What the log knows about itself now."""

    def events(self, after: int, limit: int = ...) -> Sequence[Row]:
        """The rows of `EVENTS` after a sequence number, oldest first; an empty list after the newest event."""

    def snapshot(self) -> AbstractContextManager[object]:
        """Within the block, every read sees the log at one moment."""

    def rows(self, table: CopiedTable) -> Iterator[Sequence[Row]]:
        """All rows of a table, in portions."""

    def close(self) -> None:
        """Release the log."""


class CopyTarget(Protocol):
    """The log that is written. No Karrot can use it before `publish`. Every method raises `LogUnavailableError`."""

    def begin(self, head: LogHead) -> int | None:
        """Begin or continue the copy of a log. Returns the last event that the target has, or 0 if it has none.

        ``None`` means that the target is already a finished copy, with every event of the log. Refuses a target with
        another log, and a target with events of its own.
        """

    def newest(self) -> Row | None:
        """The newest event that the target has."""

    def add(self, events: Sequence[Row]) -> None:
        """Store events durably, after those that the target has."""

    def fill(self, head: LogHead, state: Iterable[tuple[CopiedTable, Iterator[Sequence[Row]]]]) -> None:
        """Replace the rows of the tables in `STATE`, and what the log knows about itself. `publish` commits this."""

    def publish(self) -> None:
        """Commit, and let Karrot use the log."""

    def close(self) -> None:
        """Release the log. What is not committed is lost."""


def taken_target(place: str, head: LogHead, *, log_id: str, last_seq: int, empty: str) -> str:
    """The sentence that refuses a target with a finished log. ``empty`` says how to choose an empty target."""
    if log_id != head.log_id:
        return f"{place} holds another event log ({log_id}, {last_seq} events so far): {empty}"
    if last_seq > head.last_seq:
        return (
            f"{place} has taken {last_seq - head.last_seq} events of its own since this log was copied to it. A copy "
            f"would lose them: {empty}"
        )
    return (
        f"{place} holds an older copy of this log, which is finished: the source has taken {head.last_seq - last_seq} "
        f"events since then. To copy the log again, {empty}"
    )


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False
