"""Polls a cluster at an interval. Each poll evaluates the groups, saves the state and sends the events.

The events go to this Karrot's event log, or are posted to a URL in Burrow's format.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from karrot import telemetry
from karrot.burrow.notification_rules import NameFilter
from karrot.burrow.payload import GROUP, LONGEST_EXTRA, to_wire
from karrot.clock import Clock
from karrot.deletions import MISSING_MS, MissingGroups
from karrot.event import ABANDONED, SOURCE_HEADER, TOPIC_IDS, LagEvent, Source, TopicPartition
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import LogUnavailableError, OverloadedError
from karrot.eventlog.event_log import EventLog, save_outcome
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from karrot.http_client import ACCEPTED, HttpClient, Limits, RequestFailed
from karrot.intake import Intake
from karrot.runbooks_and_remedies import WATCH
from karrot.settings.options import Settings
from karrot.watch.client_process import ClientProcess, Stopped
from karrot.watch.cluster_interface import Cluster, ClusterError, Description, Failure, connect
from karrot.watch.cluster_reader import Poll, Stability, poll_cluster, retention
from karrot.watch.rings import BEYOND_END_POLLS, UnreadRecords
from karrot.watch.saved_state import Keeper, Memory, dump, load, log_keeper
from karrot.watch.verdicts_and_incidents import Life, deleted, see_owners, verdict, without_alarm

_AT_ONCE = 8
"""The most events sent at once. The log commits them together. A receiving Karrot also has other requests."""

_SAVE_MS = 60_000
_DEAD_MS = 300_000
_NOT_KEPT = (LogUnavailableError, OverloadedError, OSError)

_log = structlog.get_logger(__name__)


class PollOutcome(NamedTuple):
    """The verdicts and deletions of one poll, the health of every group, and the number of groups of other kinds.

    ``without_offsets`` are the groups that have no committed offset on the watched topics.
    """

    polled_at_ms: int
    seconds: float
    events: Sequence[LagEvent]
    groups: Sequence[GroupHealth]
    others: int = 0
    without_offsets: Sequence[str] = ()


Send = Callable[[PollOutcome, Callable[[], int]], None]
"""Sends a poll's outcome. The second argument returns the outcome's age in ms. An unsent event is lost."""


class IntakeSink:
    """Stores events through the intake, and the groups' health in the log. The health expires after ``good_for_ms``."""

    def __init__(self, cluster: str, intake: Intake, notes: EventLog, *, good_for_ms: int) -> None:
        self._cluster = cluster
        self._good_for_ms = good_for_ms
        self._intake = intake
        self._notes = notes
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-watch")
        # If the log has no poll of this cluster, store an empty poll, which shows a watch without any answer yet.
        with suppress(LogUnavailableError, OverloadedError):
            poll = watch_data_of_groups.read(self._notes)
            if poll is None or poll.cluster != self._cluster:
                watch_data_of_groups.keep(self._notes, WatchedCluster(self._cluster, 0, 0.0, 0, 0, ()))

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        """Store the events, until the log refuses one."""
        try:
            for few in _few_at_a_time(outcome.events):
                list(self._pool.map(lambda event: self._intake.accept(event, age_ms=age_ms()), few))
            watched = WatchedCluster(
                cluster=self._cluster,
                polled_at_ms=outcome.polled_at_ms,
                poll_seconds=outcome.seconds,
                log_time_ms=self._notes.log_time_ms() - age_ms(),
                good_for_ms=self._good_for_ms,
                groups=tuple(each for each in outcome.groups if len(each.consumer.encode()) <= GROUP.most),
                others=outcome.others,
            )
            watch_data_of_groups.keep(self._notes, watched)
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("some verdicts of a poll could not be stored", code="verdicts_not_stored", reason=str(error))

    def close(self) -> None:
        self._pool.shutdown()


class PostSink:
    """Posts each event to ``url`` in Burrow's format. A header says that the source is Kafka.

    A post is not repeated, because the next poll has new verdicts: they also end an incident whose close was lost.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._client = HttpClient(
            url, Limits(connections=_AT_ONCE), headers={SOURCE_HEADER: Source.KAFKA.value, **headers}
        )
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-watch")
        self._logged: frozenset[str] = frozenset()

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:  # noqa: ARG002 (Burrow's JSON has no age)
        """Post the events, until none of a few gets an answer. Log a problem only if the last poll did not have it."""
        problems, unsent = Counter[str](), len(outcome.events)
        for few in _few_at_a_time(outcome.events):
            said = list(self._pool.map(self._post, few))
            unsent -= len(few)
            problems.update(each for each in said if isinstance(each, str))
            unanswered = [each for each in said if isinstance(each, RequestFailed)]
            problems.update(each.said for each in unanswered)
            if len(unanswered) == len(few):
                problems[unanswered[0].said] += unsent
                break
        for problem in problems.keys() - self._logged:
            _log.warning(
                "posts are not accepted",
                code="posts_refused",
                url=self._client.url,
                reason=problem,
                posts=problems[problem],
            )
        if self._logged and not problems:
            _log.info("posts are accepted again", url=self._client.url)
        self._logged = frozenset(problems)

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()

    def _post(self, event: LagEvent) -> str | RequestFailed | None:
        """Post an event. Return the problem if it was refused, or the error if there was no answer."""
        try:
            answer = self._client.post("", to_wire(event))
        except RequestFailed as error:
            return error
        return None if answer.status in ACCEPTED else f"HTTP {answer.status}"


def _few_at_a_time(events: Sequence[LagEvent]) -> Iterator[Sequence[LagEvent]]:
    """Split the events, so that only a few wait for a timeout if the receiver or the log takes none."""
    return (events[start : start + _AT_ONCE] for start in range(0, len(events), _AT_ONCE))


@dataclass(slots=True)
class Watcher:
    """Watches the groups and topics of one cluster that the filters ``groups`` and ``topics`` admit.

    ``interval`` is in seconds. A group whose name contains a match of ``offsets_elsewhere`` keeps its offsets outside
    Kafka. A lag up to ``allowed_lag`` is OK. ``abandoned_after`` (in seconds) and ``abandoned_groups`` say which groups
    without members are abandoned. ``report`` is called after each poll, with the error of the whole poll or ``None``.
    """

    name: str
    cluster: Cluster
    clock: Clock
    send: Send
    keeper: Keeper | None
    interval: float = 10.0
    groups: NameFilter = field(default_factory=NameFilter)
    topics: NameFilter = field(default_factory=NameFilter)
    offsets_elsewhere: re.Pattern[str] | None = None
    allowed_lag: int = 0
    abandoned_after: int = 3600
    abandoned_groups: re.Pattern[str] | None = None
    count: Callable[..., None] = lambda *_args, **_labels: None
    report: Callable[[str | None], None] = lambda _error: None
    _memory: Memory | None = None
    _saved_at_ms: int = 0
    _unread: UnreadRecords = field(default_factory=UnreadRecords)
    _missing: MissingGroups = field(default_factory=MissingGroups)
    _logged: Mapping[str, Failure] = field(default_factory=dict)
    _is_slow: bool = False

    def step(self) -> float:
        """Make one poll. Return the seconds to wait before the next poll."""
        started, now_ms = self.clock.boot_ms(), self.clock.wall_ms()
        try:
            self._poll(started, now_ms)
        except ClusterError as error:
            self._failed("the cluster", Failure(error.reason, str(error)))
        except _NOT_KEPT as error:
            self._failed("the memory", Failure("memory", str(error)))
        else:
            self.report(None)
            seconds = self._since(started)
            if seconds > self.interval and not self._is_slow:  # log only the first of several slow polls
                _log.warning(
                    "a poll took longer than the interval", code="poll_slow", seconds=seconds, interval=self.interval
                )
            self._is_slow = seconds > self.interval
        return max(0.0, self.interval - self._since(started))

    def close(self) -> None:
        if self._memory is not None:
            self._save(self._memory)
        self.cluster.close()

    def _poll(self, started: int, now_ms: int) -> None:
        memory = self._remembered(now_ms)
        poll = poll_cluster(self.cluster, self.groups, self.topics)
        self._see(poll, memory, now_ms)
        unreadable = self._unread.see(self.cluster, memory.rings)
        # Make all requests to Kafka before the verdicts. The event of a close or a deletion is made only once, so a
        # later error would lose the event.
        groups = list(self._health(poll, memory))
        dead = self._dead(poll, memory, started)
        before = dict(memory.incidents.open)
        events: list[LagEvent] = []
        for group in poll.committed:  # the lag of all other groups is unknown
            asked = (self.name, group, memory.rings, poll.described[group], now_ms)
            event = verdict(*asked, without=poll.gone, allowed_lag=self.allowed_lag)
            if event is not None:
                memory.judged.add(group)
                rebalances = "rebalances", str(memory.stability[group].rebalances)
                text = memory.lives[group].text
                topics = sorted({one.topic for one in event.partitions} & poll.topic_ids.keys())
                ids = " ".join(f"{topic}={poll.topic_ids[topic]}" for topic in topics)
                more = {TOPIC_IDS: ids} if 0 < len(ids) <= LONGEST_EXTRA else {}
                more |= {ABANDONED.lower(): memory.lives[group].reason} if text == ABANDONED else {}
                event = event._replace(extras=(*event.extras, rebalances, *more.items()))
                is_ended = text == ABANDONED or group not in memory.incidents.open  # OK while waiting ends no incident
                events.append(memory.incidents.name(without_alarm(event, text) if text and is_ended else event))
        events += self._deleted(dead, memory, now_ms)
        groups += [GroupHealth(group, "Dead", 0, None, 0, None, None) for group in sorted(memory.deleted)]
        # Save before sending, so that after a crash the next process continues the incident under its id.
        if memory.incidents.open != before or started - self._saved_at_ms >= _SAVE_MS:
            self._save(memory)
        without_offsets = [group for group, committed in poll.committed.items() if not committed]
        others = len(poll.listing.others)
        outcome = PollOutcome(now_ms, self._since(started), events, groups, others, without_offsets)
        self.send(outcome, lambda: self.clock.boot_ms() - started)
        failures = [*poll.failures.values(), *(each for what, each in unreadable.items() if what not in self._logged)]
        self._log_failures({**poll.failures, **unreadable})
        self._count(Counter(failure.reason for failure in failures))

    def _remembered(self, now_ms: int) -> Memory:
        if self._memory is None:
            self._memory = load(None if self.keeper is None else self.keeper.recall(), self.name, now_ms)
            for group in [each for each in self._memory.stability if not self.groups.has(each)]:
                self._memory.forget(group)
            if self._memory.lists[0] != str(self.groups):  # earlier lists used another filter
                self._memory.lists = (str(self.groups), 0, 0)
        return self._memory

    def _see(self, poll: Poll, memory: Memory, now_ms: int) -> None:
        memory.rings.allowed_lag = self.allowed_lag
        memory.rings.see_logs(poll.starts, poll.ends, now_ms)
        for group in poll.described:
            self._see_life(group, poll, memory, now_ms)
        if poll.listing.is_complete:
            memory.lists = (memory.lists[0], memory.lists[1] or now_ms, now_ms)
        for group, committed in poll.committed.items():
            described = poll.described[group]
            memory.rings.see_commits(group, committed, owned=described.owned(committed), now_ms=now_ms)
            memory.rings.see_uncommitted(group, self._uncommitted(poll, group), described)
        memory.rings.forget_unread()
        for group, described in poll.described.items():
            memory.stability.setdefault(group, Stability()).see(described)

    def _see_life(self, group: str, poll: Poll, memory: Memory, now_ms: int) -> None:
        described, rings, (_, first_ms, newest_ms) = poll.described[group], memory.rings, memory.lists
        # Only an earlier list without a group proves that the group is new, after the first minute (`MissingGroups`).
        new_since_ms = newest_ms if 0 < first_ms < now_ms - MISSING_MS else 0
        is_empty, of_group = described.state == "Empty", rings.groups.get(group, {})
        life = memory.lives.setdefault(group, Life(now_ms - new_since_ms, now_ms, is_empty))
        before, is_unread = life.text, not of_group.keys() - poll.gone <= poll.ends.keys()
        life.see(
            now_ms,
            int(self.interval * 1000) * rings.intervals,
            self.abandoned_after * 1000,
            is_empty=is_empty,
            moved=group in poll.committed and see_owners(of_group, described, poll.committed[group]),
            grown=group in rings.uncommitted or not rings.grown.isdisjoint(of_group),
            is_named=bool(self.abandoned_groups and self.abandoned_groups.search(group)),
        )
        life.text = before if life.text == ABANDONED and is_unread else life.text

    def _dead(self, poll: Poll, memory: Memory, started: int) -> list[str]:
        """The deleted groups, which are missing from the lists and whose coordinator reports the state Dead."""
        listing, known = poll.listing, dict.fromkeys(memory.stability, 0)
        missing = self._missing.see(listing.groups, known, started, is_complete=listing.is_complete)
        answers = self.cluster.describe(missing) if missing else {}
        return [group for group, each in answers.items() if isinstance(each, Description) and each.state == "Dead"]

    def _deleted(self, dead: Iterable[str], memory: Memory, now_ms: int) -> Iterator[LagEvent]:
        """Forget the deleted groups, and make an event for each deleted group that had a verdict."""
        for group in dead:
            # Rings do not show whether a group had a verdict: a group that is deleted after the list has no rings.
            if group in memory.judged:
                yield deleted(self.name, group, now_ms)
            memory.forget(group)
            memory.deleted[group] = now_ms
        # The alert KarrotConsumerVanished needs a scrape that shows the group as Dead.
        deleted_ms = {each: memory.deleted[each] for each in memory.deleted.keys() - memory.lives.keys()}
        memory.deleted = {group: at_ms for group, at_ms in deleted_ms.items() if now_ms - at_ms < _DEAD_MS}

    def _health(self, poll: Poll, memory: Memory) -> Iterator[GroupHealth]:
        for group, described in poll.described.items():
            committed, rings = poll.committed.get(group), memory.rings.groups.get(group, {})
            beyond_end = sum(ring.beyond_end >= BEYOND_END_POLLS and not ring.is_left for ring in rings.values())
            held = sum(ring.is_owned and (ring.held or 0) >= memory.rings.intervals for ring in rings.values())
            yield GroupHealth(
                group,
                described.state,
                None if described.members is None else len(described.members),
                described.coordinator,
                memory.stability[group].rebalances,
                *retention(memory.rings.retained(group, committed or {}), poll.starts, poll.ends),
                beyond_end=None if committed is None else beyond_end,
                uncommitted=None if committed is None else len(self._uncommitted(poll, group)),
                abandoned=memory.lives[group].text == ABANDONED,
                open_transactions=None if committed is None else held,
            )

    def _uncommitted(self, poll: Poll, group: str) -> set[TopicPartition]:
        keeps_them_elsewhere = self.offsets_elsewhere and self.offsets_elsewhere.search(group)
        return set() if keeps_them_elsewhere else poll.uncommitted(group)

    def _save(self, memory: Memory) -> None:
        try:
            if self.keeper is not None:
                self.keeper.remember(dump(memory, self.name, self.clock.wall_ms()))
        except _NOT_KEPT as error:  # the state in memory is still valid
            _log.warning(
                "the state of the groups could not be saved for a restart",
                code="watch_state_not_saved",
                reason=str(error),
            )
            self._count({"memory": 1})
        self._saved_at_ms = self.clock.boot_ms()

    def _failed(self, what: str, failure: Failure) -> None:
        self._log_failures({**self._logged, what: failure})
        self._count({failure.reason: 1})
        self.report(failure.text)

    def _count(self, reasons: Mapping[str, int]) -> None:
        for reason, times in reasons.items():
            self.count(telemetry.WATCH_FAILURES, times, reason=reason)

    def _since(self, started: int) -> float:
        return (self.clock.boot_ms() - started) / 1000

    def _log_failures(self, failures: Mapping[str, Failure]) -> None:
        for what, failure in failures.items():
            # Compare reasons instead of texts, because the text of one error can name different brokers.
            if what not in self._logged or self._logged[what].reason != failure.reason:
                _log.warning(
                    "cannot be watched", code="not_watched", what=what, kafka_error=failure.reason, reason=failure.text
                )
        for what in self._logged.keys() - failures.keys():
            _log.info("can be watched again", what=what)
        self._logged = failures


def run(watcher: Watcher, stop: threading.Event) -> None:
    """Poll until ``stop`` is set, and close the watcher."""
    wait_s = 0.0
    while not stop.wait(wait_s):
        try:
            wait_s = watcher.step()
        except Stopped:
            break
        except Exception:  # noqa: BLE001 - the outermost loop, which must continue
            _log.exception("a poll failed unexpectedly", code="poll_failed")
            watcher.count(telemetry.WATCH_FAILURES, reason="unexpected")
            wait_s = watcher.interval
    watcher.close()


def serve_watch(settings: Settings, log: EventLog, intake: Intake, clock: Clock, stop: threading.Event) -> None:
    """Watch the configured cluster until ``stop`` is set. The leader runs this function."""
    name = settings.watch_cluster or ""
    sink = IntakeSink(name, intake, log, good_for_ms=settings.stale_after * 1000)
    watcher = Watcher(
        name=name,
        cluster=ClientProcess(partial(connect, settings.watch_bootstrap, settings.watch_client), stop),
        clock=clock,
        send=sink.send,
        keeper=log_keeper(log, name),
        interval=settings.watch_interval,
        groups=NameFilter.of(settings.watch_groups, settings.watch_exclude_groups),
        topics=NameFilter.of(settings.watch_topics, settings.watch_exclude_topics),
        offsets_elsewhere=settings.watch_offsets_elsewhere,
        allowed_lag=settings.watch_allowed_lag,
        abandoned_after=settings.abandoned_after,
        abandoned_groups=settings.abandoned_groups,
        count=log.count,
        report=partial(save_outcome, log, WATCH, clock),
    )
    with closing(sink):
        run(watcher, stop)
