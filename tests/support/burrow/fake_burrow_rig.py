"""Runs the fake Burrow's REST API over HTTP, on a clock that the test sets."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from karrot.burrow.client import Burrow
from karrot.burrow.notification_rules import NotifierSettings
from karrot.http_client import Limits
from support.burrow.fake.fake_burrow import BurrowSettings
from support.burrow.fake.rest_api import BurrowServer
from support.burrow.fake.simulated_kafka import Behaviour, ConsumerGroup, SimulatedTopic
from support.burrow.restartable_burrow import RestartableApi, RestartableBurrow
from support.burrow.viper_config import EXAMPLE, configured
from support.manual_clock import ManualClock

SETTINGS = BurrowSettings(NotifierSettings(threshold=1, interval=10, send_interval=5, send_close=True))


@dataclass
class FakeBurrowRig:
    """The fake Burrow with its server, its clock and a client."""

    fake: RestartableBurrow
    server: BurrowServer
    clock: ManualClock
    burrow: Burrow

    def after(self, seconds: float) -> None:
        """Let this number of seconds pass, also for the simulated groups."""
        self.clock.advance(int(seconds * 1000))
        self.fake.state(self.clock.wall_ms())


def simulated_group(
    name: str,
    behaviour: Behaviour | None = None,
    *,
    topic: str = "orders",
    partitions: int = 3,
    commit_every: float = 1.0,
) -> ConsumerGroup:
    """Make a group that reads one topic with a given behaviour."""
    return ConsumerGroup(
        name,
        [SimulatedTopic(topic, [20.0] * partitions, [100_000] * partitions)],
        behaviour or Behaviour(),
        Random(3),
        commit_every=commit_every,
        afflicted=frozenset((topic, number) for number in range(partitions)),
    )


@contextmanager
def fake_burrow(
    *groups: ConsumerGroup,
    clusters: Sequence[str] = ("prod",),
    settings: BurrowSettings = SETTINGS,
    configuration: str = EXAMPLE,
) -> Iterator[FakeBurrowRig]:
    """Serve a fake Burrow with these groups in its first cluster."""
    clock = ManualClock()
    world = {cluster: list(groups) if cluster == clusters[0] else [] for cluster in clusters}
    fake = RestartableBurrow(world, Random(4), start_ms=clock.wall_ms(), settings=settings)
    with (
        BurrowServer(RestartableApi(fake, clock, Random(5), configuration=configured(configuration))) as server,
        Burrow(server.url, Limits(pause=lambda _: None), now_ms=clock.wall_ms) as burrow,
    ):
        yield FakeBurrowRig(fake, server, clock, burrow)
