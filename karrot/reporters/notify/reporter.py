"""Compares what each channel knows with the groups' newest states, and sends the difference.

So nothing is queued. What a channel does not know, because it is silent, limited or broken, or because Karrot was
killed, is found again by the next comparison, and only what is still true is sent.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from random import Random

import msgspec
import structlog

from karrot.event import GroupKey, Kind, Status
from karrot.eventlog.base import GroupState, LogUnavailableError, OverloadedError
from karrot.reporters.base import REPORT_NOTE, Context, Fact, Report, ReportFailed, Unreported, retry_delay_s
from karrot.reporters.notify.messages import Change, Message, Owners, Told, Writer
from karrot.reporters.notify.routes import Route, Sender
from karrot.text import clock, counted, instant

_FEW, _LONGEST = 5, 6
"""More changes than `_FEW` are one message, which waits up to `_LONGEST` times ``gather_seconds`` for the last."""

_BAD = (Status.WARN, Status.ERR)
_SILENT_MS = 300_000
"""A group without verdicts is over after this time in which its cluster has verdicts. After an outage, all are late.

A cluster without new verdicts for half of this time is silent: when a source stops, its groups expire one by one.
"""

_HOUR_MS, _EVERY_MS, _LATE_MS, _LONGEST_S, _THROTTLED_S, _CLOSE_S = 3_600_000, 1000, 30_000, 300.0, 60.0, 3.0
_log = structlog.get_logger(__name__)

States = Mapping[GroupKey, GroupState]
Muted = Callable[[Sequence[GroupKey]], Collection[GroupKey]]
IsGone = Callable[[GroupKey], bool]
_NONE: Muted = lambda _: ()  # noqa: E731
Memory = tuple[list[Told], list[int]]
"""What the log keeps of a channel: the open incidents that it knows, and the times of its newest messages."""


def in_trouble(states: States) -> States:
    """The groups that messages can be about. An unknown status neither opens nor closes an incident."""
    kinds = {Kind.INCIDENT, Kind.UNKNOWN}
    found = (each for each in states.values() if each.summary.kind in kinds and each.summary.status is not Status.OK)
    return {each.key: each for each in found if not each.is_of_burrow and not each.is_test}


class Silence:
    """Knows which groups that are not live are gone: deleted, or silent while their cluster is not."""

    def __init__(self) -> None:
        self.deleted: set[GroupKey] = set()
        self._heard_since_ms: dict[str, int] = {}
        self._now_ms = 0

    def look(self, live: States, now_ms: int) -> None:
        self.deleted -= live.keys()
        newest = dict[str, int]()
        for key, state in live.items():
            newest[key.cluster] = max(state.log_time_ms, newest.get(key.cluster, 0))
        heard = [cluster for cluster, at_ms in newest.items() if now_ms - at_ms < _SILENT_MS // 2]
        self._heard_since_ms = {each: self._heard_since_ms.get(each, now_ms) for each in heard}
        self._now_ms = now_ms

    def is_gone(self, key: GroupKey) -> bool:
        since_ms = self._heard_since_ms.get(key.cluster, self._now_ms)
        return key in self.deleted or self._now_ms - since_ms >= _SILENT_MS


class Channel:
    """What one channel knows, and its next message. All times but ``wall_ms`` are log times."""

    def __init__(
        self, name: str, route: Route, writer: Writer, note: bytes | None = None, muted: Muted = _NONE
    ) -> None:
        told, self._sent_ms = list[Told](), list[int]()
        with suppress(msgspec.MsgspecError):  # a note of another version
            told, self._sent_ms = msgspec.json.decode(note or b"[[],[]]", type=Memory)
        self.name, self._route, self._writer, self._muted = name, route, writer, muted
        self._told = {each.key: each for each in told}
        self.seen_ms: dict[tuple[str, GroupKey, str], int] = {}
        self.sending: tuple[Message, Future[tuple[str, str] | None], float] | None = None
        self.failures, self.retry_ms, self.fact, self.failure = 0, 0, "no message yet", ("", "")

    def next_message(self, live: States, bad: States, is_gone: IsGone, now_ms: int, wall_ms: int) -> Message | None:
        """Return the message that is due. ``bad`` are the groups of ``live`` in trouble."""
        muted = self._muted([*bad, *self._told])
        changes = [each for each in self._changes(live, bad, is_gone) if each.told.key not in muted]
        names = [(each.what, each.told.key, each.told.incident_id) for each in changes]
        self.seen_ms = {name: self.seen_ms.get(name, now_ms) for name in names}
        self._sent_ms = [at_ms for at_ms in self._sent_ms if now_ms - _HOUR_MS < at_ms <= now_ms]
        ages, gather_ms = [now_ms - at_ms for at_ms in self.seen_ms.values()], 1000 * self._route.gather_seconds
        left = self._route.per_hour - len(self._sent_ms)
        if not ages or not left or max(ages) < gather_ms or any(each.has(wall_ms) for each in self._route.quiet):
            return None
        if len(ages) > _FEW and min(ages) < gather_ms and max(ages) < _LONGEST * gather_ms:
            return None  # more changes may come
        oldest, *_ = min(self.seen_ms, key=lambda name: self.seen_ms[name])
        found = sorted((each for each in changes if (each.what == "closed") is (oldest == "closed")), key=_badness)
        return self._writer.many(found) if len(found) > min(_FEW, left) else self._writer.one(found[0], wall_ms)

    def begins(self, message: Message) -> bytes:
        """Note what the channel may know soon, and return what the log keeps, so that a crash loses no end."""
        self._told |= {each.told.key: each.told._replace(is_sure=False) for each in _openings(message)}
        return self._memory()

    def sent(self, message: Message, now_ms: int) -> bytes:
        """Note that the channel knows the message now, and return what the log keeps."""
        for what, told, _ in message.changes:
            self._told.pop(told.key, None)
            self._told |= {} if what == "closed" else {told.key: told}
        self._sent_ms.append(now_ms)
        return self._memory()

    def failed(self, message: Message) -> bytes:
        """Note that the channel did not get the message, and return what the log keeps."""
        for each in _openings(message):
            self._told.pop(each.told.key, None)
        return self._memory()

    def _memory(self) -> bytes:
        return msgspec.json.encode((list(self._told.values()), self._sent_ms))

    def _changes(self, live: States, bad: States, is_gone: IsGone) -> Iterator[Change]:
        for key, state in bad.items():
            told, now_id, status = self._told.get(key), state.incident.open_id or "", state.summary.status
            if told and told.incident_id and now_id and told.incident_id != now_id:
                yield Change("closed", told, state)  # the channel gets the new incident after this message
                continue
            told = told if told and told.is_sure else None
            if status in _BAD and self._route.wants(key):
                since_ms = state.incident.since_ms or state.summary.observed_at_ms
                if told is None and status >= Status[self._route.status]:
                    yield Change("opened", Told(key, now_id, status.name, since_ms), state)
                elif told and Status[told.status] < status:
                    worse = told._replace(incident_id=now_id or told.incident_id, status=status.name)
                    yield Change("worse", worse, state)
        over = (key for key in self._told if key not in bad and (key in live or is_gone(key)))
        yield from (Change("closed", self._told[key], live.get(key)) for key in over)


def _openings(message: Message) -> list[Change]:
    return [each for each in message.changes if each.what == "opened"]


def _badness(change: Change) -> tuple[bool, int]:
    return change.told.status != Status.ERR.name, -((change.state and change.state.summary.total_lag) or 0)


class NotifyReporter:
    """Gives each channel its messages, each in a thread of its own, so that no channel delays another."""

    every_s = 1.0

    def __init__(
        self, channels: Mapping[str, tuple[Route, Sender]], owners: Owners, external_url: str | None, context: Context
    ) -> None:
        self._context, self._random = context, Random()  # noqa: S311 (it only spreads retries)
        writer = Writer(external_url, owners, context.event, context.explain)
        self._channels = {
            Channel(name, route, writer, context.recall(f"channel {name}"), context.muted): sender
            for name, (route, sender) in channels.items()
        }
        self._next_ms, self._sent, self._facts = 0, 0, tuple[Fact, ...]()
        self._silence, self._failures_said = Silence(), 0

    def report(self, events: Unreported) -> None:
        """Take all events. The newest states of the groups say what to send. Each report says what fails."""
        self._silence.deleted |= {state.key for state in events.groups() if state.summary.kind is Kind.DELETED}
        self._send_due()
        self._say_what_fails()

    def idle(self) -> None:
        """Send what is due while there are no new events, and say what has failed since."""
        self._send_due()
        if sum(channel.failures for channel in self._channels) != self._failures_said:
            self._say_what_fails()

    def _say_what_fails(self) -> None:
        self._failures_said = sum(channel.failures for channel in self._channels)
        for channel in self._channels:
            if channel.failures and (channel.sending or channel.seen_ms):
                reason, text = channel.failure
                raise ReportFailed(reason, f"channel {channel.name}: {text}", is_reported=True)

    def _send_due(self) -> None:
        now_ms, wall_ms = self._context.log_time_ms(), self._context.clock.wall_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        live = {state.key: state for state in self._context.live()}
        bad = in_trouble(live)
        self._silence.look(live, now_ms)
        for channel, sender in self._channels.items():
            if self._is_sending(channel, now_ms) or now_ms < channel.retry_ms or not self._context.leads():
                continue
            try:
                message = channel.next_message(live, bad, self._silence.is_gone, now_ms, wall_ms)
            except (LogUnavailableError, OverloadedError):
                raise
            except Exception as error:  # noqa: BLE001 (the fault of one channel must not silence the others)
                _log.exception("a message cannot be written", code="message_not_written", channel=channel.name)
                self._failed(channel, "unexpected", f"the message cannot be written: {type(error).__name__}", now_ms)
                continue
            if message:
                if any(_openings(message)):
                    self._context.remember(f"channel {channel.name}", channel.begins(message))
                channel.sending = message, Future(), now_ms + _LATE_MS
                # A service that hangs keeps this thread, and the channel starts no other.
                threading.Thread(target=_send, args=(sender, *channel.sending[:2]), daemon=True).start()
        facts = tuple(Fact(f"Channel {each.name}", each.fact) for each in self._channels)
        if facts != self._facts:
            self._context.remember(REPORT_NOTE, msgspec.json.encode(Report(instant(wall_ms), self._sent, facts)))
            self._facts = facts

    def close(self) -> None:
        """Wait a short time for the sends in progress, and note those that succeeded."""
        for channel in self._channels:
            if channel.sending and self._context.leads():
                with suppress(TimeoutError, LogUnavailableError, OverloadedError):
                    channel.sending[1].result(_CLOSE_S / len(self._channels))
                    self._is_sending(channel, self._context.log_time_ms())

    def _is_sending(self, channel: Channel, now_ms: int) -> bool:
        """Whether a send is in progress. Note the outcome of a send that ended, and a send that is late."""
        if channel.sending is None:
            return False
        message, outcome, late_ms = channel.sending
        is_done, is_late = outcome.done(), now_ms > late_ms
        channel.sending = message, outcome, math.inf if is_late else late_ms
        failure = outcome.result() if is_done else ("timeout", "the service does not answer")
        if failure is None:
            self._context.remember(f"channel {channel.name}", channel.sent(message, now_ms))
            channel.failures, self._sent, channel.fact = 0, self._sent + 1, f"{self._time()}: sent a message"
        elif is_done or is_late:
            if is_done:
                self._context.remember(f"channel {channel.name}", channel.failed(message))
            self._failed(channel, *failure, now_ms)
        if is_done:  # if the log could not note the message, the next call notes it
            channel.sending = None
        return not is_done

    def _failed(self, channel: Channel, reason: str, text: str, now_ms: int) -> None:
        channel.failures, channel.failure = channel.failures + 1, (reason, text)
        least_s = _THROTTLED_S if reason == "throttled" else 0
        wait_s = max(least_s, retry_delay_s(channel.failures, self._random, most_s=_LONGEST_S))
        channel.retry_ms = now_ms + int(1000 * wait_s)
        waiting = f"{counted(channel.failures, 'failure')} in a row, {counted(len(channel.seen_ms), 'change')} waiting"
        channel.fact = f"{self._time()}: {text} ({waiting})"
        if channel.failures == 1:
            why = {"channel": channel.name, "fault": reason, "reason": text}
            _log.warning("a channel cannot send", code="channel_cannot_send", **why)

    def _time(self) -> str:
        return f"{clock(self._context.clock.wall_ms() / 1000)} UTC"


def _send(sender: Sender, message: Message, outcome: "Future[tuple[str, str] | None]") -> None:
    outcome.set_result(sender.send(message))
