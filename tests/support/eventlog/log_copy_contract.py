"""The contract tests of copies of an event log; each pair of databases runs all of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from signal import SIGKILL

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.copied_tables import LONGEST_KEY
from karrot.eventlog.log_copy import open_source, open_target
from karrot.eventlog.postgres import row_copy as postgres_row_copy
from karrot.eventlog.sqlite import row_copy as sqlite_row_copy
from karrot.settings.options import Settings
from support.burrow.lag_events import event_strategy, make_partition
from support.child_process import CHILDREN
from support.eventlog.appended_events import append_event, group_names
from support.eventlog.log_copies import (
    RETENTION_MS,
    continue_both,
    copy,
    copy_and_kill_self,
    everything,
    fill,
    head,
    serving,
)
from support.manual_clock import ManualClock

NewPlace = Callable[[], Settings]

KILLS = {
    "before it begins": ("begin", 1, "before"),
    "after it began": ("begin", 1, "after"),
    "before the first events": ("add", 1, "before"),
    "after the first events": ("add", 1, "after"),
    "in the middle of the events": ("add", 3, "after"),
    "before the state": ("fill", 1, "before"),
    "at the first row of the state": ("rows", 1, "in"),
    "in the middle of the state": ("rows", 4, "in"),
    "before the last commit": ("publish", 1, "before"),
    "after the last commit": ("publish", 1, "after"),
}
"""Where a copy is killed, as `copy_and_kill_self` takes it."""


@contextmanager
def refused_as_in_use(match: str = "in use by a running Karrot") -> Iterator[None]:
    """Expect this refusal after a moment, not after the seconds in which a killed process may still have its lock."""
    with pytest.MonkeyPatch.context() as patched:
        for row_copy in (postgres_row_copy, sqlite_row_copy):
            patched.setattr(row_copy, "_LOCK_WAIT_S", 0.1)
        with pytest.raises(LogUnavailableError, match=match):
            yield


class LogCopyContract:
    """Subclasses define the fixtures ``new_source`` and ``new_target``, which make an empty place for a log."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def source(self, new_source: NewPlace) -> Settings:
        return new_source()

    @pytest.fixture
    def target(self, new_target: NewPlace) -> Settings:
        return new_target()

    def test_every_reader_gets_the_same_answers_from_the_copy(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            fill(log, clock)
            before, log_ms = everything(log), log.log_time_ms()
        result = copy(source, target, clock, page=5)
        assert (result.is_finished, result.was_finished, result.copied) == (True, False, len(before["events"]))
        assert (+result.damaged, +result.left_out) == ({}, {})
        with serving(target, clock) as log:
            assert everything(log) == before
            assert 0 <= log.log_time_ms() - log_ms < 30_000  # the clock of PostgreSQL goes on during the test
        with serving(source, clock) as log:
            assert everything(log) == before  # the source is not changed
        assert head(target, clock) == head(source, clock)

    def test_the_copy_continues_as_the_source_would(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            fill(log, clock)
        copy(source, target, clock)
        with serving(source, clock) as old, serving(target, clock) as new:
            of_old, of_new = continue_both([old, new], clock)
        assert of_new == of_old

    def test_any_events_are_the_same_in_the_copy(
        self, new_source: NewPlace, new_target: NewPlace, clock: ManualClock
    ) -> None:
        # No group is silent for almost `STALE_MS`: PostgreSQL's clock goes on, so it could expire during the test.
        pauses = st.integers(0, 5).map(lambda number: number * 80_000)
        steps = st.lists(st.tuples(event_strategy(), pauses, st.integers(0, 4_999)), max_size=8)

        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
        @given(steps=steps)
        def is_same(steps: list[tuple[LagEvent, int, int]]) -> None:
            source, target = new_source(), new_target()
            with serving(source, clock) as log:
                for event, pause_ms, age_ms in steps:
                    log.append(event, to_wire(event), age_ms=age_ms)
                    clock.advance(pause_ms)
                    log.expire()
                log.prune()
                before = everything(log)
            copy(source, target, clock, page=3)
            with serving(target, clock) as log:
                assert everything(log) == before

        is_same()

    def test_a_group_with_a_name_that_postgresql_cannot_hold_is_named_and_its_events_are_copied(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        """An older Karrot has stored such names in SQLite. PostgreSQL refuses them, so the copy would never end."""
        long, longest = (Random(1).randbytes(size // 2).hex() for size in (3_000, LONGEST_KEY))
        only_on_sqlite = [] if source.is_on_postgresql else [long]
        with serving(source, clock) as log:
            for name in ("good", *only_on_sqlite, longest):
                append_event(log, cluster="", consumer=name, partitions=(make_partition(topic=name),))
            events = everything(log)["events"]
        result = copy(source, target, clock, page=5)
        assert result.is_finished
        assert +result.left_out == (Counter(groups=1, log_ends=1) if only_on_sqlite else {})
        assert result.left_out_groups == [f"{name[:256]}… in (empty)" for name in only_on_sqlite]
        assert result.head.groups == 2
        with serving(target, clock) as log:
            assert everything(log)["events"] == events
            assert group_names(log) == sorted(("good", longest))
            assert log.size().groups == 2

    def test_a_log_whose_events_are_all_deleted_keeps_its_numbers(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            append_event(log)
            append_event(log)
            clock.advance(RETENTION_MS + 1)
            assert log.prune() == 2
        assert copy(source, target, clock).copied == 0
        with serving(target, clock) as log:
            assert log.size().events == 0
            assert append_event(log).seq == 3

    def test_an_empty_log_is_copied_with_its_id(self, source: Settings, target: Settings, clock: ManualClock) -> None:
        with serving(source, clock) as log:
            log_id = log.log_id
        assert copy(source, target, clock).is_finished
        with serving(target, clock) as log:
            assert (log.log_id, append_event(log).seq) == (log_id, 1)

    @pytest.mark.parametrize("place", KILLS)
    def test_a_copy_that_is_killed_continues_and_is_the_same(
        self, source: Settings, target: Settings, clock: ManualClock, place: str
    ) -> None:
        with serving(source, clock) as log:
            fill(log, clock)
            before = everything(log)
        child = CHILDREN.Process(target=copy_and_kill_self, args=(source, target, clock, KILLS[place]))
        child.start()
        child.join(60)
        assert child.exitcode == -SIGKILL
        if place not in {"before it begins", "after the last commit"}:
            with pytest.raises(LogUnavailableError, match="unfinished copy"), serving(target, clock):
                pass
        result = copy(source, target, clock, page=5)
        assert (result.is_finished, result.was_finished) == (True, place == "after the last commit")
        with serving(target, clock) as log:
            assert everything(log) == before

    def test_karrot_does_not_start_on_an_unfinished_copy(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            append_event(log)
        assert not copy(source, target, clock, in_advance=True).is_finished
        with (
            pytest.raises(LogUnavailableError, match="holds an unfinished copy of an event log"),
            serving(target, clock),
        ):
            pass
        assert copy(source, target, clock).copied == 0
        with serving(target, clock) as log:
            assert log.size().events == 1

    def test_events_are_copied_in_advance_while_karrot_runs(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            assert log.lead()
            for _ in range(12):
                append_event(log)
            assert copy(source, target, clock, in_advance=True, page=5).copied == 12
            clock.advance(RETENTION_MS + 1)
            fill(log, clock)  # deletes all events that were copied
            before = everything(log)
        result = copy(source, target, clock, page=5)
        assert (result.is_finished, result.copied) == (True, len(before["events"]))
        with serving(target, clock) as log:
            assert everything(log) == before

    def test_a_source_that_karrot_uses_is_refused(self, source: Settings, target: Settings, clock: ManualClock) -> None:
        with serving(source, clock) as log:
            assert log.lead()
            with refused_as_in_use(r"in use by a running Karrot.*: stop it, or copy its events"):
                copy(source, target, clock)
        assert copy(source, target, clock).is_finished

    def test_a_target_that_karrot_uses_is_refused(self, source: Settings, target: Settings, clock: ManualClock) -> None:
        with serving(source, clock):
            pass
        with serving(target, clock) as log:
            assert log.lead()
            with refused_as_in_use():
                copy(source, target, clock)
        assert copy(source, target, clock).is_finished  # it never had an event

    def test_a_second_copy_at_the_same_time_is_refused(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock):
            pass
        with closing(open_target(target, clock)), refused_as_in_use():
            copy(source, target, clock, in_advance=True)
        with closing(open_source(source, clock, in_advance=False)), refused_as_in_use():
            copy(source, target, clock)

    def test_a_finished_copy_is_not_copied_again(self, source: Settings, target: Settings, clock: ManualClock) -> None:
        with serving(source, clock) as log:
            append_event(log)
        copy(source, target, clock)
        result = copy(source, target, clock)
        assert (result.is_finished, result.was_finished, result.copied) == (True, True, 0)
        with serving(source, clock) as log:
            append_event(log)
        with pytest.raises(
            LogUnavailableError, match="an older copy of this log, which is finished: the source has ta"
        ):
            copy(source, target, clock)

    def test_a_target_with_events_of_its_own_is_refused(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with serving(source, clock) as log:
            append_event(log)
        copy(source, target, clock)
        with serving(target, clock) as log:
            append_event(log)
        with pytest.raises(LogUnavailableError, match="has taken 1 events of its own since this log was copied to it"):
            copy(source, target, clock)

    def test_a_target_with_another_log_is_refused(self, source: Settings, target: Settings, clock: ManualClock) -> None:
        with serving(source, clock) as log:
            append_event(log)
        with serving(target, clock) as log:
            append_event(log)
            other = everything(log)
        with pytest.raises(LogUnavailableError, match="holds another event log"):
            copy(source, target, clock)
        with serving(target, clock) as log:
            assert everything(log) == other

    def test_an_unfinished_copy_of_another_log_is_refused(
        self, source: Settings, new_source: NewPlace, target: Settings, clock: ManualClock
    ) -> None:
        other = new_source()
        for place in (source, other):
            with serving(place, clock) as log:
                append_event(log)
        copy(other, target, clock, in_advance=True)
        with pytest.raises(LogUnavailableError, match="holds an unfinished copy of another event log"):
            copy(source, target, clock)
        assert copy(other, target, clock).is_finished

    def test_a_source_that_was_set_back_is_refused(
        self, source: Settings, new_source: NewPlace, new_target: NewPlace, clock: ManualClock
    ) -> None:
        target, backup = new_target(), new_source()
        with serving(source, clock) as log:
            append_event(log)
        copy(source, backup, clock)
        with serving(source, clock) as log:
            append_event(log, total_lag=1)
        copy(source, target, clock, in_advance=True)
        with pytest.raises(
            LogUnavailableError, match="has event 2 of this log, but the source has only events up to 1"
        ):
            copy(backup, target, clock)
        with serving(backup, clock) as log:
            append_event(log, total_lag=2)
        with pytest.raises(LogUnavailableError, match="has event 2 of this log, but the source has another event"):
            copy(backup, target, clock)

    def test_a_place_without_a_log_is_refused_as_source(
        self, source: Settings, target: Settings, clock: ManualClock
    ) -> None:
        with pytest.raises(LogUnavailableError, match="there is no event log in"):
            copy(source, target, clock)
