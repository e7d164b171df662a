"""Writes the messages about incidents: one for each change of an incident, or one for many changes at once."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from karrot.diagnosis.causes import cause
from karrot.diagnosis.explanations import Explanation
from karrot.event import ABANDONED, AgeKind, GroupKey
from karrot.eventlog.base import EventSummary, GroupState, StoredEvent
from karrot.runbooks_and_remedies import DOCS_URL
from karrot.text import count, counted, duration, moment, visible

_SURE = {AgeKind.AT_LEAST: "≥ ", AgeKind.EXTRAPOLATED: "≈ "}
_KINDS = {"ERR": "failure", "WARN": "warning"}
_NAMED = 5

Owners = Sequence[tuple[re.Pattern[str], str]]
"""Patterns with the teams that own groups. The first pattern that a name contains decides."""


class Told(NamedTuple):
    """An open incident that a channel knows, with the worst status that the channel knows.

    If ``is_sure`` is false, it is not known whether the channel got the message.
    """

    key: GroupKey
    incident_id: str
    status: str
    since_ms: int
    is_sure: bool = True


class Change(NamedTuple):
    """A change that a channel does not know: ``opened``, ``worse`` or ``closed``. ``state`` is the group's, if live."""

    what: str
    told: Told
    state: GroupState | None


class Message(NamedTuple):
    """A message before it has a format: lines with a label. ``kind`` is one of Apprise's notification types."""

    title: str
    lines: Sequence[tuple[str, str]]
    kind: str
    changes: Sequence[Change] = ()

    def body(self) -> str:
        return "\n".join(map(": ".join, self.lines))

    def markdown(self, escape: Callable[[str], str]) -> str:
        links = {"Page", "Runbook"}
        lines = (f"[{label}]({text})" if label in links else escape(f"{label}: {text}") for label, text in self.lines)
        return "\n\n".join(lines)


class Writer(NamedTuple):
    """Writes messages. ``event`` finds an event of the log."""

    external_url: str | None
    owners: Owners
    event: Callable[[int], StoredEvent | None]
    explain: Callable[[GroupState], Explanation]

    def one(self, change: Change, now_ms: int) -> Message:
        """Write the message about one change."""
        (what, told, state), (cluster, consumer) = change, change.told.key
        began = moment(datetime.fromtimestamp(told.since_ms // 1000, UTC))
        lines = [("Since", f"{began} ({duration(max(0, now_ms - told.since_ms) / 1000)})")]
        title, kind, runbook = f"Over: {_name(told)}", "success", ""
        if what == "closed" or state is None:
            lines.append(("End", _end(change)))
        else:
            title, kind = f"{'Worse, ' * (what == 'worse')}{told.status}: {_name(told)}", _KINDS[told.status]
            lines += [("Behind", _behind(state.summary)), *self._worst(state)]
            why = self.explain(state)
            told_why = {"Cause": [why.sentence], "Proof": why.evidence, "Not known": why.missing}
            lines += [(label, _calm(" ".join(texts))) for label, texts in told_why.items()]
            lines.append(("Check", why.check))
            runbook = why.runbook
        lines.append(("Team", next((team for pattern, team in self.owners if pattern.search(consumer)), "")))
        page = f"{self.external_url}/group?cluster={quote(cluster, safe='')}&consumer={quote(consumer, safe='')}"
        lines.append(("Page", page if self.external_url else ""))
        above, ending = (self.external_url, "") if self.external_url else (DOCS_URL, ".md")
        lines.append(("Runbook", f"{above}/runbooks/{runbook}{ending}" if runbook else ""))
        return Message(title, [line for line in lines if line[1]], kind, [change])

    def many(self, changes: Sequence[Change]) -> Message:
        """Write one message about many changes, with the worst of them."""
        is_over, bad = changes[0].what == "closed", sum(each.told.status == "ERR" for each in changes)
        numbers = ", ".join(f"{count(n)} {name}" for name, n in (("ERR", bad), ("WARN", len(changes) - bad)) if n)
        where = ", ".join(sorted({_safe(each.told.key.cluster) for each in changes})[:_NAMED])
        lines = [(f"{each.told.status} {_name(each.told)}", _end(each)) for each in changes[:_NAMED]]
        lines += [("More", count(len(changes) - _NAMED))] if len(changes) > _NAMED else []
        lines += [("Page", f"{self.external_url}/")] if self.external_url else []
        title = f"{'Over' if is_over else 'Trouble'}: {counted(len(changes), 'group')} on {where} ({numbers})"
        return Message(title, lines, "success" if is_over else "failure" if bad else "warning", changes)

    def _worst(self, state: GroupState) -> list[tuple[str, str]]:
        stored = self.event(state.seq)
        known = filter(None, (*stored.event.partitions, stored.event.max_lag) if stored else ())
        of = max(known, key=lambda one: (one.status or 0, one.current_lag or 0), default=None)
        if of is None:
            return []
        client = f" ({_safe(of.client_id)})" if of.client_id else ""
        owner = f"{_safe(of.owner.lstrip('/'))}{client}" if of.owner else "not known"
        return [("Worst partition", f"{_safe(of.topic)} {of.partition}, owner {owner}")]


def _end(change: Change) -> str:
    """Say how an incident ended, or how a group is, as far as Karrot knows it."""
    what, told, state = change
    if state is None:
        return "there are no verdicts on the group any more: it is deleted, or its source is silent"
    if what != "closed":
        why = cause(state, None)
        return f"{_behind(state.summary)}{f'; {why.brief}' if why and why.brief else ''}"
    if state.summary.status_text == ABANDONED:
        return "the group is abandoned: it has no members"
    if state.incident.open_id not in {None, told.incident_id}:
        return "the group has a new incident"
    return f"the group is {visible(state.summary.status_text)}, {_behind(state.summary)}"


def _behind(summary: EventSummary) -> str:
    seconds, kind = summary.signals.lag_seconds, summary.signals.lag_seconds_kind
    lag = "lag not known" if summary.total_lag is None else f"{counted(summary.total_lag, 'message')} behind"
    sure = "" if kind is None else _SURE.get(kind, "")
    return lag if seconds is None else f"{lag}, the oldest is {sure}{duration(seconds)} old"


def _name(told: Told) -> str:
    return f"{_safe(told.key.consumer)} on {_safe(told.key.cluster)}"


def _safe(name: str) -> str:
    return _calm(visible(name))


def _calm(text: str) -> str:
    """Put a zero-width space behind each ``@``, so that ``@everyone`` in a name does not call everyone."""
    return text.replace("@", "@\u200b")
