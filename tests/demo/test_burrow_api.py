from collections.abc import Iterator

import pytest

from karrot.burrow.client import Burrow, NotFound
from karrot.demo.local_server import serve_locally
from karrot.demo.simulated_burrow import CLUSTERS, BurrowApi, SimulatedBurrow
from karrot.doctor.checks import burrow_notifier, burrow_storage
from karrot.doctor.read_burrow import BurrowSeen, read_burrow
from karrot.event import GroupKey
from karrot.http_client import Limits, RequestFailed
from support.manual_clock import ManualClock


@pytest.fixture
def simulated(clock: ManualClock) -> SimulatedBurrow:
    return SimulatedBurrow(24, seed=7, speed=1, start_ms=clock.wall_ms() - 20_000)


@pytest.fixture
def url(simulated: SimulatedBurrow, clock: ManualClock) -> Iterator[str]:
    with serve_locally(BurrowApi(simulated, clock, "http://127.0.0.1:9").answer) as served:
        yield served


@pytest.fixture
def burrow(url: str, clock: ManualClock) -> Iterator[Burrow]:
    with Burrow(url, Limits(pause=lambda _: None), now_ms=clock.wall_ms) as client:
        yield client


def test_the_lists_have_every_cluster_group_and_topic(burrow: Burrow) -> None:
    assert burrow.ready()
    assert burrow.clusters() == CLUSTERS
    assert len(burrow.consumers("prod-eu")) == len(burrow.consumers("prod-us")) == 13
    assert {"orders.v1", "__consumer_offsets"} < set(burrow.topics("prod-eu"))


def test_a_verdict_is_that_of_the_simulation(burrow: Burrow, simulated: SimulatedBurrow, clock: ManualClock) -> None:
    verdict = simulated.verdict(GroupKey("prod-eu", "orders-svc"), clock.wall_ms())
    assert verdict is not None
    told = burrow.lag("prod-eu", "orders-svc")
    assert (told.status_text, told.total_lag, told.partitions) == (
        verdict.status_text,
        verdict.total_lag,
        verdict.partitions,
    )
    assert {lag.status_text for lag in burrow.status("prod-eu", "orders-svc").partitions} == {"WARN"}


def test_an_unknown_name_is_not_found(burrow: Burrow) -> None:
    for ask in (
        lambda: burrow.lag("prod-eu", "unknown"),
        lambda: burrow.consumers("unknown"),
        lambda: burrow.modules("unknown"),
    ):
        with pytest.raises(NotFound):
            ask()


def test_a_deleted_group_is_not_listed(burrow: Burrow, clock: ManualClock) -> None:
    assert "session-tracker" in burrow.consumers("prod-us")
    clock.advance(200_000)
    assert "session-tracker" not in burrow.consumers("prod-us")
    with pytest.raises(RequestFailed):
        burrow.lag("prod-us", "session-tracker")


def test_the_doctor_reads_all_of_it_and_finds_no_problem(url: str) -> None:
    seen = read_burrow(url, Limits(), karrot_url=None)
    assert isinstance(seen, BurrowSeen)
    assert seen.unread == ()
    checks = (*burrow_notifier.CHECKS, *burrow_storage.CHECKS)
    assert [finding.what for check in checks for finding in check(seen) if finding.level.is_wrong] == []
