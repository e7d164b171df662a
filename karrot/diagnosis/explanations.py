"""Explains a group's state: a cause in words, with its evidence, what is missing, and the next commands. No I/O."""

import string
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from karrot.diagnosis.causes import NextCommand, cause, pace, texts
from karrot.diagnosis.known_facts import Known, moved_ms
from karrot.diagnosis.rules import Found, find, name_of
from karrot.event import GroupKey, PartitionLag, Source
from karrot.signals import is_time
from karrot.text import EPOCH, count, counted, duration, moment, percent, shell_word

_FORMS = {"": count, "time": duration, "rate": pace, "share": percent}


class Explanation(msgspec.Struct, frozen=True):
    """Why a group is in its state. ``since`` is the time since when Karrot sees the cause.

    ``cause`` is a stable code. It is ``none`` for a group without a problem, and ``not_known`` if the facts do not
    exclude all other causes. ``missing`` then names the facts that would. ``at_least`` marks a lower bound of the lag.
    """

    cluster: str
    consumer: str
    status: str
    since: datetime | None
    lag: int | None
    lag_seconds: float | None
    lag_seconds_kind: Literal["exact", "extrapolated", "at_least"] | None
    cause: str
    sentence: str
    evidence: list[str]
    missing: list[str]
    check: str
    runbook: str
    commands: list[NextCommand]


class _Words(string.Formatter):
    """Fills in the values of a sentence. A number in ``{lag:message}`` becomes ``2 messages``."""

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, str):
            return value
        return _FORMS[spec](value) if spec in _FORMS else counted(value, spec)


def explain(known: Known, settings: Mapping[str, str] | None = None) -> Explanation:
    """Explain a group's state. The ``settings`` may have the addresses for the commands."""
    state, summary, found, fill = known.state, known.state.summary, find(known), _Words().format
    words = texts().causes[found.cause]
    base = cause(state, known.seconds_since(summary.last_commit_ms)) if words.sentence == "base" else None
    sentence = base.sentence if base else fill(words.sentence, **found.values)
    words = replace(base, commands=words.commands) if base else words
    proofs = (*words.evidence, *([texts().causes[found.reason].sentence] if found.reason else ()))
    if "base" in proofs:  # the words of the group's status
        why = cause(state, known.seconds_since(summary.last_commit_ms))
        proofs = (*words.evidence, why.sentence.replace("{", "{{").replace("}", "}}") if why else "")
    evidence = [*(_still(known, one) for one in found.stuck[:3]), *(fill(each, **found.values) for each in proofs)]
    moved = [at_ms for one in found.stuck if (at_ms := moved_ms(one))]
    since_ms = min(moved, default=state.incident.since_ms if state.incident.open_id else None)
    kind: Any = summary.signals.lag_seconds_kind
    return Explanation(
        *state.key,
        status=summary.status_text,
        since=EPOCH + timedelta(milliseconds=since_ms) if since_ms and is_time(since_ms) else None,
        lag=summary.total_lag,
        lag_seconds=summary.signals.lag_seconds,
        lag_seconds_kind=None if kind is None else kind.name.lower(),
        cause=found.cause,
        sentence=sentence,
        evidence=[*evidence, *found.evidence],
        missing=[texts().missing[found.missing]] if found.missing else [],
        check=words.look,
        runbook=words.runbook,
        commands=_commands(known, found, words.commands, settings or {}),
    )


def names_of(key: GroupKey, settings: Mapping[str, str], at: PartitionLag | None) -> dict[str, object]:
    """The names for a group's commands. The addresses of its brokers and of Burrow are examples if not known."""
    is_watched = settings.get("KARROT_WATCH_CLUSTER") == key.cluster
    brokers = (is_watched and settings.get("KARROT_WATCH_BOOTSTRAP")) or "kafka-1:9092"
    burrow = settings.get("KARROT_BURROW_URL") or "http://burrow:8000"
    found: dict[str, object] = {"brokers": brokers, "burrow": burrow, "cluster": key.cluster, "group": key.consumer}
    if at is not None:
        place = f"{at.topic}:{at.partition}"
        found |= {"topic": at.topic, "partition": at.partition, "place": place, "position": at.position}
    return found


def _still(known: Known, one: PartitionLag) -> str:
    seconds, first, written = known.seconds_since(moved_ms(one)), one.first_unread, ""
    since = "" if seconds is None else f" for {duration(seconds)}"
    waiting = "" if one.current_lag is None else f", and {counted(one.current_lag, 'message')} wait"
    if first is not None and first.written_ms is not None and is_time(first.written_ms):
        written = f" The first was written at {moment(EPOCH + timedelta(seconds=first.written_ms // 1000))}."
    return f"{name_of(one)} has not moved{since}. Its offset is {count(one.position or 0)}{waiting}.{written}"


def _commands(known: Known, found: Found, names: tuple[str, ...], settings: Mapping[str, str]) -> list[NextCommand]:
    """Fill in the commands. A command is left out if one of its values is not known."""
    values = {**names_of(known.state.key, settings, found.at), "offset": found.offset}
    if known.state.summary.source is Source.KAFKA:
        del values["burrow"]
    quoted = {name: shell_word(str(value)) for name, value in values.items() if value is not None}
    filled = []
    for each in (texts().commands[name] for name in names):
        with suppress(KeyError):
            filled.append(NextCommand(each.purpose.format(**quoted), each.command.format(**quoted)))
    return filled
