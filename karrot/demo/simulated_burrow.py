"""Simulates consumer groups that fall behind and recover, and a Burrow that judges them by Burrow's rules.

A group's offsets are a function only of the time. So the simulation stores no commits, and starts immediately.
Times are simulated seconds since the start. Rates are messages per simulated second.
"""

import heapq
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate, islice
from random import Random
from typing import Any, Final, NamedTuple

from msgspec import Raw, json
from werkzeug import Response

from karrot.burrow.notification_rules import NotifiedGroup, NotifierSettings, notify
from karrot.burrow.payload import result_to_wire
from karrot.burrow.rules import DEFAULT_INTERVALS, TrackedPartition, evaluate_group
from karrot.clock import Clock
from karrot.event import GroupKey, LagEvent, OffsetSample, Status
from karrot.text import EPOCH

CLUSTERS: Final = ("prod-eu", "prod-us")
INTERVAL_S: Final = 5
"""Burrow judges every group every 5 s, so that the pages change visibly."""
TIMEOUT_S: Final = 4
"""The notifier's timeout for an answer, which must be below the interval."""

GROUP_NAMES: Final = (
    *(("orders-svc", "orders.v1"), ("billing", "invoices.v2"), ("search-indexer", "catalog.changes")),
    *(("fraud-detector", "payments.authorized"), ("email-sender", "notifications.email")),
    *(("clickstream-etl", "web.clicks"), ("inventory-sync", "warehouse.stock")),
    *(("payments-settlement", "payments.captured"), ("recommendations", "user.events")),
    *(("session-tracker", "web.sessions"), ("audit-archiver", "audit.log"), ("shipping-notifier", "shipments.v1")),
    *(("pricing-engine", "prices.updates"), ("ad-bidder", "ads.impressions")),
    *(("user-profile-cache", "users.changelog"), ("image-resizer", "media.uploads"), ("data-lake-sink", "lake.raw")),
    *(("crm-export", "crm.contacts"), ("push-gateway", "notifications.push")),
    *(("loyalty-points", "loyalty.transactions"), ("geo-enricher", "devices.positions")),
    *(("returns-desk", "returns.v1"), ("invoice-printer", "documents.pdf"), ("metrics-rollup", "telemetry.raw")),
)
"""The groups and their topics."""

_DAY = 86_400
_WAVE_SECONDS, _WAVE_HEIGHT = 90.0, 0.2
_SLOWEST_POLL, _GOLDEN = 0.2, 0.618
_OFFSETS_PARTITIONS = 50


class _Phase(NamedTuple):
    """A phase of a group. ``pace`` is the group's consume rate divided by the topic's produce rate.

    At the start of the phase, the group rewinds by the messages of ``goes_back`` seconds.
    """

    seconds: float
    pace: float = 3.0
    commits: bool = True
    exists: bool = True
    goes_back: float = 0.0

    def behind(self, before: float, seconds: float) -> float:
        """Return how many seconds of messages are unread ``seconds`` after the start of this phase."""
        return max(0.0, before + self.goes_back + (1 - self.pace) * seconds)


class _Behaviour(NamedTuple):
    """Phases that a group repeats. Phases affect the share ``afflicts`` of the group's partitions, at least one.

    ``starts`` is the range of the group's position in its first round, by default the whole round. ``skew`` multiplies
    the rate of the first affected partition.
    """

    phases: tuple[_Phase, ...] = (_Phase(60),)
    afflicts: float = 1.0
    starts: tuple[float, float] | None = None
    skew: float = 1.0


_HEALTHY = _Behaviour()
_FALLING_BEHIND = _Behaviour((_Phase(50, pace=0.6), _Phase(60, pace=1.8)), starts=(8, 20))
_SPIKY = _Behaviour((_Phase(48, pace=1.6), _Phase(12, pace=0.2)))
_STALLED = _Behaviour((_Phase(60), _Phase(40, pace=0)), afflicts=0.3)
_SKEWED = _Behaviour((_Phase(60, pace=0.8), _Phase(45, pace=1.8)), afflicts=0, starts=(10, 30), skew=8)
_STOPPED = _Behaviour((_Phase(70), _Phase(50, pace=0, commits=False)), afflicts=0.5)
_REWINDING = _Behaviour((_Phase(75), _Phase(30, pace=1.6, goes_back=90)), afflicts=0.4, starts=(30, 70))
_DELETED = _Behaviour((_Phase(150), _Phase(420, exists=False)), starts=(60, 100))
_JUST_JOINED = _Behaviour((_Phase(600, pace=2.5, goes_back=45), _Phase(60, exists=False)), starts=(3, 6))
_ORDER = (
    *(_FALLING_BEHIND, _HEALTHY, _SPIKY, _STALLED, _HEALTHY, _SKEWED),
    *(_STOPPED, _HEALTHY, _REWINDING, _DELETED, _HEALTHY, _JUST_JOINED),
)
"""The behaviours of the groups. Every behaviour is among the first twelve."""


class _Commit(NamedTuple):
    """A commit of a group. The last three fields are topic times, as in ``SimulatedGroup._produced``.

    These times belong to Burrow's newest log end, and to the offsets of the healthy and the afflicted partitions.
    """

    at_ms: int
    of_afflicted: bool
    log_end: float
    well: float
    badly: float


class _Partition(NamedTuple):
    topic: str
    number: int
    rate: float
    first: float
    is_afflicted: bool
    owner: str
    client_id: str

    def offset(self, moment: float) -> int:
        """Return the log end offset at a topic time."""
        return int(self.first + self.rate * moment)

    def tracked(self, commits: Sequence[_Commit], log_ends: Sequence[float]) -> TrackedPartition:
        """Return what Burrow stores about this partition. ``commits`` are the group's commits, the newest first."""
        mine = islice((each for each in commits if each.of_afflicted or not self.is_afflicted), DEFAULT_INTERVALS)
        samples = [self._sample(each) for each in mine]
        slots = (*(None,) * (DEFAULT_INTERVALS - len(samples)), *reversed(samples))
        ends = [self.offset(moment) for moment in log_ends]
        return TrackedPartition(self.topic, self.number, slots, ends, self.owner, self.client_id)

    def _sample(self, commit: _Commit) -> OffsetSample:
        offset = self.offset(commit.badly if self.is_afflicted else commit.well)
        lag = max(0, self.offset(commit.log_end) - offset)
        return OffsetSample(offset, commit.at_ms, observed_at_ms=commit.at_ms // 1000 * 1000, lag=lag)


class SimulatedGroup:
    """A consumer group. Each group has its own speed, so that groups change phases at different times.

    ``topics`` has the rates of each topic's partitions, ``afflicted`` the numbers of the affected partitions.
    """

    def __init__(
        self,
        name: str,
        topics: Mapping[str, Sequence[float]],
        random: Random,
        behaviour: _Behaviour = _HEALTHY,
        *,
        commit_every: float = 2.0,
        members: int = 0,
        afflicted: Sequence[int] = (),
    ) -> None:
        self.name, self.topics = name, tuple(topics)
        self._phases = behaviour.phases
        self._round = sum(phase.seconds for phase in self._phases)
        self._shift = random.uniform(*(behaviour.starts or (0.0, self._round)))
        self._tempo = random.uniform(0.8, 1.25)
        self._wave = random.uniform(0, 2 * math.pi)
        self._every, self._first = commit_every, random.uniform(0, commit_every)
        net = f"/10.{random.randint(0, 63)}.{random.randint(0, 255)}"
        owners = [(f"{net}.{each}", f"consumer-{name}-{each}") for each in range(1, members + 1)] or [("", "")]
        places = [(topic, *each) for topic, rates in topics.items() for each in enumerate(rates)]
        self._partitions = [
            _Partition(
                *(topic, number, rate, rate * random.uniform(1, 30) * _DAY),
                topic == self.topics[0] and number in afflicted,
                *owners[place * len(owners) // len(places)],
            )
            for place, (topic, number, rate) in enumerate(places)
        ]
        # Assume a round before the first round, in which the group's lag was 0 at some time.
        after_each = accumulate(
            self._phases * 2, lambda before, phase: phase.behind(before, phase.seconds), initial=0.0
        )
        self._rounds = tuple(zip(self._phases, tuple(after_each)[len(self._phases) :], strict=False))

    def partitions(self, at: float, wall_ms: Callable[[float], int]) -> list[TrackedPartition]:
        """Return what Burrow stores about each partition; an empty list if the group does not exist."""
        commits = self._commits(at, wall_ms) if self._state(at)[0].exists else []
        log_ends = [self._produced(math.floor(at) - back) for back in reversed(range(DEFAULT_INTERVALS))]
        return [each.tracked(commits, log_ends) for each in self._partitions] if commits else []

    def _commits(self, at: float, wall_ms: Callable[[float], int]) -> list[_Commit]:
        """Return the newest commits of the group, the newest first, enough for all windows."""
        found: list[_Commit] = []
        number, needed = math.floor((at - self._first) / self._every), DEFAULT_INTERVALS
        while needed:
            moment = self._first + number * self._every
            phase, behind = self._state(moment)
            if not phase.exists:
                break
            polled = _SLOWEST_POLL * (number * _GOLDEN % 1)
            times = (math.floor(moment), moment - polled, moment - max(behind, polled))
            found.append(_Commit(wall_ms(moment), phase.commits, *map(self._produced, times)))
            needed -= phase.commits
            number -= 1
        return found

    def _state(self, at: float) -> tuple[_Phase, float]:
        """Return the phase, and how many seconds of messages are unread in the afflicted partitions."""
        rest = (at * self._tempo + self._shift) % self._round
        for phase, before in self._rounds:
            if rest < phase.seconds:
                return phase, phase.behind(before, rest) / self._tempo
            rest -= phase.seconds
        return phase, phase.behind(before, phase.seconds) / self._tempo

    def _produced(self, at: float) -> float:
        """Return the topic time: it runs fast while the produce rate is high."""
        turn = 2 * math.pi / _WAVE_SECONDS
        return at + _WAVE_HEIGHT / turn * math.sin(at * turn + self._wave)


class SimulatedBurrow:
    """A Burrow that watches ``groups`` groups in total, and its own group in each cluster, from ``start_ms`` on.

    ``speed`` multiplies the rates. A ``speed`` below 1 divides the intervals. The same seed gives the same
    groups. Several threads can ask for verdicts while one thread posts.
    """

    def __init__(self, groups: int, *, seed: int, speed: float, start_ms: int) -> None:
        self.interval_s = INTERVAL_S / min(speed, 1)  # doctor warns of a Burrow with shorter intervals
        self._speed, self._start_ms = speed, start_ms
        self._notifier = NotifierSettings(Status.OK, self.interval_s, self.interval_s / 2, send_close=True)
        self._random = Random(f"{seed}/burrow")  # noqa: S311 (a simulation)
        own = ((cluster, _own_group(cluster, seed)) for cluster in CLUSTERS)
        named = ((CLUSTERS[number % len(CLUSTERS)], _application_group(number, seed)) for number in range(groups))
        self.groups = {GroupKey(cluster, group.name): group for cluster, group in (*own, *named)}
        self._notified: dict[GroupKey, NotifiedGroup] = {}
        self._agenda = [(start_ms + self._random.uniform(0, 1000 * self.interval_s), key) for key in self.groups]
        heapq.heapify(self._agenda)

    def due(self, now_ms: int) -> Iterator[LagEvent]:
        """Yield the verdicts that are due. If the machine was suspended, each group is judged only once."""
        while self._agenda[0][0] <= now_ms:
            due_ms, key = self._agenda[0]
            next_ms = due_ms + 1000 * self.interval_s
            heapq.heapreplace(self._agenda, (next_ms if next_ms > now_ms else now_ms + 1000 * self.interval_s, key))
            verdict = self.verdict(key, now_ms, show_all=False)
            if verdict is None:
                self._notified.pop(key, None)
            elif (posted := self._posted(key, verdict)) is not None:
                yield posted

    def verdict(self, key: GroupKey, now_ms: int, *, show_all: bool = True) -> LagEvent | None:
        """Return the verdict on a group, with all or only the bad partitions; ``None`` for an unknown group."""
        group = self.groups.get(key)
        partitions = group.partitions((now_ms - self._start_ms) * self._speed / 1000, self._wall_ms) if group else []
        return evaluate_group(*key, partitions, now_ms, show_all=show_all) if partitions else None

    def _posted(self, key: GroupKey, verdict: LagEvent) -> LagEvent | None:
        group = self._notified.setdefault(key, NotifiedGroup())
        sent = notify(group, Status[verdict.status_text], verdict.observed_at_ms, self._notifier, self._new_id)
        if sent is None or sent.incident is None:
            return None if sent is None else verdict
        start = EPOCH + timedelta(milliseconds=sent.incident.start_ms)
        return verdict._replace(incident_id=sent.incident.id, incident_start=start)

    def _wall_ms(self, at: float) -> int:
        return self._start_ms + int(at * 1000 / self._speed)

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)


def _own_group(cluster: str, seed: int) -> SimulatedGroup:
    """Make Burrow's own group, which shows Burrow's progress in ``__consumer_offsets``. This group has no owners."""
    random = Random(f"{seed}/burrow-{cluster}")  # noqa: S311 (a simulation)
    rates = [random.uniform(0.1, 1.0) for _ in range(_OFFSETS_PARTITIONS)]
    return SimulatedGroup(f"burrow-{cluster}", {"__consumer_offsets": rates}, random)


def _application_group(number: int, seed: int) -> SimulatedGroup:
    random = Random(f"{seed}/{number}")  # noqa: S311 (a simulation)
    group, topic = GROUP_NAMES[number % len(GROUP_NAMES)]
    copy = f"-{number // len(GROUP_NAMES) + 1}" if number >= len(GROUP_NAMES) else ""
    behaviour = _ORDER[number % len(_ORDER)]
    count = random.choice((3, 4, 6, 6, 8, 12))
    afflicted = random.sample(range(count), max(1, round(behaviour.afflicts * count)))
    usual = math.exp(random.uniform(math.log(4), math.log(150)))
    rates = [usual * random.uniform(0.9, 1.1) for _ in range(count)]
    rates[afflicted[0]] *= behaviour.skew
    topics = {topic + copy: rates}
    if random.random() < 0.25:  # noqa: PLR2004 (one group in four has a retry topic)
        topics[f"{topic}{copy}.retry"] = [usual / 20]
    return SimulatedGroup(
        group + copy,
        topics,
        random,
        behaviour,
        commit_every=random.choice((1.0, 1.0, 1.5, 2.0)),
        members=random.randint(1, min(4, count)),
        afflicted=afflicted,
    )


class BurrowApi:
    """The REST API of a simulated Burrow whose notifier posts to ``karrot_url``. Several threads can use this class."""

    def __init__(self, burrow: SimulatedBurrow, clock: Clock, karrot_url: str) -> None:
        self._burrow, self._clock = burrow, clock
        kafka = {
            "class-name": "kafka",
            "servers": ["kafka:9092"],
            "client-profile": {"name": "karrot", "client-id": "burrow", "kafka-version": "3.6.0"},
        }
        sent = {"class-name": "http", "interval": round(burrow.interval_s), "threshold": 1, "timeout": TIMEOUT_S}
        for kind in ("open", "close"):
            sent |= {f"url-{kind}": f"{karrot_url}/burrow", f"method-{kind}": "POST", f"template-{kind}": "karrot.tmpl"}
        modules: dict[str, dict[str, dict[str, Any]]] = {
            "cluster": {name: kafka | {"topic-refresh": 60, "offset-refresh": 1} for name in CLUSTERS},
            "consumer": {name: kafka | {"cluster": name, "start-latest": False} for name in CLUSTERS},
            "storage": {"default": {"class-name": "inmemory", "intervals": 10, "expire-group": 604_800}},
            "evaluator": {"default": {"class-name": "caching", "expire-cache": 0}},
            "notifier": {"karrot": sent | {"noverify": "", "group-allowlist": "", "send-close": True, "extra": {}}},
        }
        self._fixed = {
            "/burrow/admin": Response("GOOD"),
            "/burrow/admin/ready": Response("READY"),
            "/v3/kafka": _said("cluster list returned", clusters=CLUSTERS),
            "/v3/config": _said("main config returned", zookeeper={"servers": ["zookeeper:2181"]}),
        }
        for cluster in CLUSTERS:
            topics = [topic for key, group in burrow.groups.items() if key.cluster == cluster for topic in group.topics]
            self._fixed[f"/v3/kafka/{cluster}/topic"] = _said("topic list returned", topics=topics)
        for kind, named in modules.items():
            self._fixed[f"/v3/config/{kind}"] = _said("module list returned", modules=list(named))
            for name, module in named.items():
                self._fixed[f"/v3/config/{kind}/{name}"] = _said(f"{kind} module detail returned", module=module)

    def answer(self, path: str, _body: bytes = b"") -> Response:
        now_ms = self._clock.wall_ms()
        match path.rstrip("/").split("/")[1:]:
            case ["v3", "kafka", cluster, "consumer"] if cluster in CLUSTERS:
                keys = [key for key in self._burrow.groups if key.cluster == cluster]
                listed = [key.consumer for key in keys if self._burrow.verdict(key, now_ms)]
                return _said("consumer list returned", consumers=listed)
            case ["v3", "kafka", cluster, "consumer", group, ("status" | "lag") as kind]:
                verdict = self._burrow.verdict(GroupKey(cluster, group), now_ms, show_all=kind == "lag")
                if verdict is not None:
                    return _said("consumer status returned", status=Raw(result_to_wire(verdict)))
        missing = Response(b'{"error":true,"message":"not found","request":{}}', 404, content_type="application/json")
        return self._fixed.get(path.rstrip("/"), missing)


def _said(message: str, **more: Any) -> Response:
    return Response(json.encode({"error": False, "message": message, **more}), content_type="application/json")
