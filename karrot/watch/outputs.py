"""Stores the events of a poll in this Karrot's event log, or posts the events to a URL as Burrow does."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import structlog

from karrot.burrow.payload import GROUP, to_wire
from karrot.event import SOURCE_HEADER, LagEvent, Source
from karrot.eventlog import watched_groups
from karrot.eventlog.base import LogUnavailableError, OverloadedError, ReporterNotes
from karrot.eventlog.watched_groups import GroupHealth, WatchedCluster
from karrot.http_client import ACCEPTED, HttpClient, Limits, RequestFailed
from karrot.intake import Intake

_AT_ONCE = 8
"""The maximum number of events sent at once. The log commits them together. Another Karrot also has other requests."""

_LONGEST_PAUSE_S = 30.0

_log = structlog.get_logger(__name__)


class PollOutcome(NamedTuple):
    """The outcome of one poll: verdicts, deletions, the health of every group, and the number of groups not watched."""

    polled_at_ms: int
    seconds: float
    events: Sequence[LagEvent]
    groups: Sequence[GroupHealth]
    others: int = 0


Send = Callable[[PollOutcome, Callable[[], int]], None]
"""Sends a poll's outcome, and gets its age. An event that cannot be sent is lost: the next poll is newer."""


class IntakeSink:
    """Stores events through the intake, and groups' health in the log. The health is valid for ``good_for_ms``."""

    def __init__(self, cluster: str, intake: Intake, notes: ReporterNotes, *, good_for_ms: int) -> None:
        self._cluster = cluster
        self._good_for_ms = good_for_ms
        self._intake = intake
        self._notes = notes
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-watch")
        # An empty poll, if the log has no poll of this cluster, shows a watch that never gets an answer.
        with suppress(LogUnavailableError, OverloadedError):
            poll = watched_groups.read(self._notes)
            if poll is None or poll.cluster != self._cluster:
                watched_groups.keep(self._notes, WatchedCluster(self._cluster, 0, 0.0, 0, 0, ()))

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        """Store the events, until the log refuses one."""
        try:
            # Store a few events at a time. If the log refuses all events, only these few have waited.
            for start in range(0, len(outcome.events), _AT_ONCE):
                few = outcome.events[start : start + _AT_ONCE]
                for _ in self._pool.map(lambda event: self._intake.accept(event, age_ms=age_ms()), few):
                    pass
            watched = WatchedCluster(
                cluster=self._cluster,
                polled_at_ms=outcome.polled_at_ms,
                poll_seconds=outcome.seconds,
                log_time_ms=self._notes.log_time_ms() - age_ms(),
                good_for_ms=self._good_for_ms,
                groups=tuple(each for each in outcome.groups if len(each.consumer.encode()) <= GROUP.most),
                others=outcome.others,
            )
            watched_groups.keep(self._notes, watched)
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("some verdicts of a poll could not be stored", code="verdicts_not_stored", reason=str(error))

    def close(self) -> None:
        self._pool.shutdown()


class _Refused(NamedTuple):
    """A post that was not accepted. ``again_after_s`` is ``None`` if a repetition would not help."""

    event: LagEvent
    problem: str
    again_after_s: float | None = None


class PostSink:
    """Posts each event to ``url`` as Burrow does, with a header that tells a Karrot there that Kafka is the source.

    The posts of a poll without an answer, or with the answer 503, are repeated once, after the pause that the receiver
    asks for. A later repetition would be useless, because the next poll has a new verdict. An event that is stored
    twice does no harm.
    """

    def __init__(self, url: str, headers: Mapping[str, str], pause: Callable[[float], object] = time.sleep) -> None:
        self._client = HttpClient(
            url, Limits(connections=_AT_ONCE), headers={SOURCE_HEADER: Source.KAFKA.value, **headers}
        )
        self._pause = pause
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-watch")
        self._logged: frozenset[str] = frozenset()

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:  # noqa: ARG002 (Burrow's JSON has no age)
        """Post the events. Problems are logged when they change."""
        refused = self._posted(outcome.events)
        again = [each for each in refused if each.again_after_s is not None]
        if again:
            self._pause(max(each.again_after_s or 0.0 for each in again))
            final = [each for each in refused if each.again_after_s is None]
            refused = [*final, *self._posted([each.event for each in again])]
        problems = Counter(each.problem for each in refused)
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

    def _posted(self, events: Sequence[LagEvent]) -> list[_Refused]:
        """Post each event once, and return those that were not accepted."""
        return [each for each in self._pool.map(self._post, events) if each is not None]

    def _post(self, event: LagEvent) -> _Refused | None:
        try:
            answer = self._client.post("", to_wire(event))
        except RequestFailed as error:
            return _Refused(event, error.said, 0.0)
        if answer.status in ACCEPTED:
            return None
        can_help = answer.status == HTTPStatus.SERVICE_UNAVAILABLE and answer.retry_after_s <= _LONGEST_PAUSE_S
        return _Refused(event, f"HTTP {answer.status}", answer.retry_after_s if can_help else None)
