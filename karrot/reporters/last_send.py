"""Defines the report on a reporter's last send. The log stores the report for the API and the pages."""

import msgspec

NOTE = "report"
"""The name of the note in the log."""


class Fact(msgspec.Struct, frozen=True):
    """One named fact about the reporter, as text."""

    name: str
    text: str


class Sent(msgspec.Struct, frozen=True):
    """One accepted item: its name at the destination, its value, and the time when the value was observed."""

    what: str
    value: float
    unit: str | None
    observed_at_ms: int


class RefusedDatum(msgspec.Struct, frozen=True):
    """One item that was not sent and never will be. ``reason`` is stable. ``text`` is for people."""

    what: str
    reason: str
    text: str
    at_ms: int


class Report(msgspec.Struct, frozen=True):
    """The last send. ``sent`` and ``refused`` are the newest items. ``sent_count`` is the number of all items sent."""

    at_ms: int
    sent_count: int
    facts: tuple[Fact, ...] = ()
    sent: tuple[Sent, ...] = ()
    refused: tuple[RefusedDatum, ...] = ()


def read(note: bytes | None) -> Report | None:
    """The report in a note. ``None`` if there is no readable report."""
    try:
        return None if note is None else msgspec.json.decode(note, type=Report)
    except msgspec.DecodeError:
        return None  # an older Karrot wrote it, and the next send replaces it
