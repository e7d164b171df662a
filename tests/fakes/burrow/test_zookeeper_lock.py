"""Several fake Burrows share one ZooKeeper lock, and a restart loses its state."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from karrot.burrow.client import Unavailable
from karrot.event import Status
from support.burrow.fake.fake_burrow import BurrowSettings, Post
from support.burrow.fake.simulated_kafka import Behaviour, Phase
from support.burrow.fake_burrow_rig import SETTINGS, fake_burrow, simulated_group
from support.burrow.restartable_burrow import Outage, OutageState, RestartableBurrow

START_MS = 1_763_741_000_000
STALLED = Behaviour((Phase(100_000, pace=0),), starts=(0, 0))


def burrow(*behaviours: Behaviour, settings: BurrowSettings = SETTINGS) -> RestartableBurrow:
    groups = [simulated_group(f"group-{number}", behaviour) for number, behaviour in enumerate(behaviours)]
    return RestartableBurrow({"prod": groups}, Random(4), start_ms=START_MS, settings=settings)


def at(seconds: float) -> int:
    return START_MS + int(seconds * 1000)


def incidents(posts: list[Post]) -> set[str | None]:
    """Return the ids of the incidents, without groups that have no incident."""
    return {post.event.incident_id for post in posts} - {None}


# The lock


def test_a_burrow_that_gets_the_lock_back_continues_its_own_incidents() -> None:
    fake = burrow(STALLED, STALLED)
    before = incidents(fake.due(at(30)))
    fake.failover("other")
    others = incidents(fake.due(at(60)))
    fake.failover("burrow-1")
    assert incidents(fake.due(at(90))) == before
    fake.failover("other")
    assert incidents(fake.due(at(120))) == others
    assert not before & others


def test_an_incident_that_ended_under_another_burrow_is_closed_by_the_first_when_it_returns() -> None:
    fake = burrow(Behaviour((Phase(70, pace=0), Phase(10_000)), starts=(0, 0)))
    [first] = incidents(fake.due(at(40)))
    fake.failover("other")
    closed = [post for post in fake.due(at(300)) if post.is_close]
    fake.failover("burrow-1")
    late = [post for post in fake.due(at(330)) if post.is_close]
    assert len(closed) == 1
    assert [post.event.incident_id for post in late] == [first]
    assert closed[0].event.incident_id != first


def test_a_lock_that_returns_within_the_interval_causes_no_early_evaluation() -> None:
    fake = burrow(STALLED)
    last = fake.due(at(40))[-1].event.observed_at_ms
    fake.lose_lock()
    fake.failover("burrow-1")
    assert fake.due(at(60))[0].event.observed_at_ms - last == pytest.approx(10_000, abs=2)


def test_without_zookeeper_no_burrow_sends_and_rest_continues() -> None:
    with fake_burrow(simulated_group("billing", STALLED)) as asked:
        asked.after(30)
        assert asked.fake.due(asked.clock.wall_ms())
        asked.fake.lose_lock()
        asked.after(300)
        assert asked.fake.due(asked.clock.wall_ms()) == []
        assert asked.burrow.lag("prod", "billing").status is Status.ERR


def test_in_a_split_network_every_group_is_sent_twice_with_two_ids() -> None:
    fake = burrow(STALLED)
    [one] = incidents(fake.due(at(30)))
    fake.split()
    assert len(incidents(fake.due(at(60)))) == 2
    fake.failover("burrow-1")
    assert incidents(fake.due(at(90))) == {one}


def test_after_a_failover_all_groups_stay_due_at_the_same_time() -> None:
    fake = burrow(*[STALLED] * 20)
    fake.due(at(30))
    fake.failover()
    moments = Counter(post.event.observed_at_ms for post in fake.due(at(60)))
    assert set(moments.values()) == {20}
    assert {later - earlier for earlier, later in pairwise(sorted(moments))} <= {10_000, 10_001, 10_002}


# Restart


def test_a_restarting_burrow_is_down_then_starting_then_ready_with_empty_lists() -> None:
    with fake_burrow(simulated_group("billing")) as asked:
        asked.fake.restart(Outage(down=2, starting=3, loading=4))
        with pytest.raises(Unavailable):
            asked.burrow.clusters()
        asked.after(2)
        assert (asked.burrow.ready(), asked.burrow.clusters(), asked.burrow.topics("prod")) == (False, ("prod",), ())
        asked.after(3)
        assert (asked.burrow.ready(), asked.burrow.topics("prod"), asked.burrow.consumers("prod")) == (
            True,
            ("orders",),
            (),
        )
        asked.after(4)
        assert asked.burrow.consumers("prod") == ("billing",)
        assert asked.burrow.lag("prod", "billing").complete == 0
        asked.after(15)
        assert asked.burrow.lag("prod", "billing").complete == 1


def test_a_restarted_burrow_sends_nothing_for_a_minute_and_then_new_incidents() -> None:
    fake = burrow(STALLED)
    before = incidents(fake.due(at(40)))
    fake.restart(Outage(down=1))
    after = fake.due(at(200))
    assert at(40 + 61) <= after[0].event.observed_at_ms <= at(40 + 61 + 10)
    assert not before & incidents(after)


def test_a_group_that_stopped_before_the_restart_is_read_from_the_topic_with_one_old_commit() -> None:
    fake = burrow(Behaviour((Phase(30), Phase(100_000, commits=False)), starts=(0, 0)))
    fake.due(at(60))
    fake.restart()
    verdict = fake.verdict("prod", "group-0", at(70))
    assert verdict is not None
    assert verdict.status is Status.ERR
    for lag in verdict.partitions:
        assert lag.start == lag.end
        assert lag.end is not None
        assert lag.end.timestamp_ms < at(40)
        assert lag.owner


def test_a_restart_from_the_latest_offset_finds_only_committing_groups_and_no_owners() -> None:
    fake = burrow(Behaviour((Phase(30), Phase(100_000, commits=False)), starts=(0, 0)), Behaviour())
    fake.due(at(60))
    fake.restart(Outage(start_latest=True))
    assert fake.verdict("prod", "group-0", at(90)) is None
    alive = fake.verdict("prod", "group-1", at(90))
    assert alive is not None
    assert {lag.owner for lag in alive.partitions} == {""}


def test_a_restart_during_a_restart_counts_from_the_second() -> None:
    fake = burrow(Behaviour())
    fake.due(at(10))
    fake.restart()
    fake.due(at(11))
    fake.restart(Outage(down=5, starting=5))
    assert [fake.state(at(moment)) for moment in (15, 16, 20.9, 21)] == [
        OutageState.DOWN,
        OutageState.STARTING,
        OutageState.STARTING,
        OutageState.READY,
    ]
    with fake.at(at(20.9)):
        pass


# Expiry


def test_an_expired_group_is_listed_until_a_request_asks_for_it() -> None:
    gone = Behaviour((Phase(10), Phase(100_000, commits=False)), starts=(0, 0))
    fake = burrow(gone)
    fake._offsets.storages["prod"]._expire_group = 60
    fake.lose_lock()
    with fake.at(at(100)) as storages:
        assert storages["prod"].groups() == ("group-0",)
    assert fake.verdict("prod", "group-0", at(100)) is None
    with fake.at(at(100)) as storages:
        assert storages["prod"].groups() == ()
