"""Defines the report of a reporter's last send, which the log keeps for the API and the pages."""

import msgspec

NOTE = "report"
"""The name of the note."""


class Fact(msgspec.Struct, frozen=True):
    """Something that is worth knowing, in words."""

    name: str
    text: str


class Sent(msgspec.Struct, frozen=True):
    """One thing that the destination took: what it is called there, its value, and when that was observed."""

    what: str
    value: float
    unit: str | None
    observed_at_ms: int


class RefusedDatum(msgspec.Struct, frozen=True):
    """One thing that was not, and will not be, sent: ``reason`` is stable, ``text`` a sentence."""

    what: str
    reason: str
    text: str
    at_ms: int


class Report(msgspec.Struct, frozen=True):
    """The last send. ``sent`` and ``refused`` are the newest of each; ``sent_count`` is how many there were."""

    at_ms: int
    sent_count: int
    facts: tuple[Fact, ...] = ()
    sent: tuple[Sent, ...] = ()
    refused: tuple[RefusedDatum, ...] = ()


def read(note: bytes | None) -> Report | None:
    """The report in a note; ``None`` where there is none that can be read."""
    try:
        return None if note is None else msgspec.json.decode(note, type=Report)
    except msgspec.DecodeError:
        return None  # of an older Karrot: the next send replaces it
