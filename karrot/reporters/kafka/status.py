"""Describe the last send to Kafka, for the API and the pages."""

from collections.abc import Sequence

import msgspec

from karrot.reporters.kafka.message import Written
from karrot.reporters.kafka.options import Options
from karrot.reporters.send_report import Fact, RefusedDatum, Report, Sent

_SHOWN = 20


def report_of(
    options: Options, before: Report | None, written: Sequence[Written], refused: Sequence[RefusedDatum], at_ms: int
) -> bytes:
    """The note of a send. What was refused stays in it, the newest first, until there is too much newer."""
    facts = (Fact("Topic", options.topic), Fact("Brokers", ", ".join(options.bootstrap)))
    earlier = before.refused if before else ()
    kept = (*reversed(refused), *earlier)[:_SHOWN]
    sent = _sent(options.topic, written, at_ms)
    return msgspec.json.encode(Report(at_ms, len(sent), facts, sent[:_SHOWN], kept))


def _sent(topic: str, written: Sequence[Written], at_ms: int) -> tuple[Sent, ...]:
    """How many records each partition got, and up to which offset."""
    offsets: dict[int, list[int]] = {}
    for each in written:
        offsets.setdefault(each.partition, []).append(each.offset)
    return tuple(
        Sent(f"{topic}-{partition} up to offset {max(found)}", len(found), "events", at_ms)
        for partition, found in sorted(offsets.items())
    )
