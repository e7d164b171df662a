"""Brings the web application into named states, such as an incident, for tests of its pages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from werkzeug.serving import WSGIRequestHandler, make_server

from karrot.burrow.payload import to_wire
from karrot.demo.simulated_burrow import CLUSTERS, SimulatedBurrow
from karrot.event import LagEvent, Source
from karrot.eventlog.base import Cursor, Reject, ReporterState
from karrot.render.cloudwatch_metric_names import cloudwatch_queries
from karrot.reporters.base import REPORT_NOTE, Fact, RefusedDatum, Report, Sent
from karrot.reporters.prometheus.group_metrics import promql_queries
from karrot.settings.options import CloudWatch, GroupMetricName
from karrot.text import instant
from support.burrow.lag_events import make_event
from support.eventlog.replicated_log import ReplicatedLog
from support.manual_clock import ManualClock
from support.servers.background_server import serve_in_thread
from support.web.website import Website, make_website

MARKUP = "<script>alert(1)</script><b>\"'&{{7*7}}\u202e"
_WORK = ("orders", "payments", "search", "billing")
_LAGS = (0, 120, 40, 980, 3, 77_000)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 (werkzeug's name)
        """Log no requests."""


def website_in_state(name: str) -> Website:
    """Make a website in the state of this name."""
    return STATES[name]()


@contextmanager
def serve_website(website: Website) -> Iterator[str]:
    """Serve the website over HTTP on this machine; yield its URL."""
    server = make_server("127.0.0.1", 0, website.client.application, threaded=True, request_handler=_Quiet)
    with serve_in_thread(server) as port:
        yield f"http://127.0.0.1:{port}"


def _site(**overrides: object) -> Website:
    names = CloudWatch(metrics=(GroupMetricName.LAG, GroupMetricName.LAG_SECONDS))
    website = make_website(
        reporters=("prometheus", "cloudwatch"),
        queries=lambda cluster, consumer: [
            *promql_queries(cluster, consumer),
            *cloudwatch_queries(cluster, consumer, names),
        ],
        **overrides,
    )
    website.clock.wall = 1_795_316_400_000  # 22 November 2026, three in the morning
    return website


def _lived(website: Website, until: Callable[[Website], bool], *, groups: int = 24, least_s: int = 90) -> Website:
    """Let a simulated Burrow post its groups until a condition is true; the reporters keep up."""
    burrow = SimulatedBurrow(groups, seed=10, speed=1, start_ms=website.clock.wall)
    for second in range(900):
        for event in burrow.due(website.clock.wall):
            website.client.post("/burrow", data=to_wire(event))
        if second >= least_s and until(website):
            break
        website.clock.advance(1000)
    _sent(website, state="ok")
    return website


def _sent(website: Website, *, state: str, error: str | None = None) -> None:
    log, now_ms = website.log, website.clock.wall
    place = Cursor(log.log_id, max(0, log.size().last_seq - 31))
    failed_ms = now_ms - 4000 if error else None
    log.save_reporter(ReporterState("cloudwatch", place, state, error, failed_ms, now_ms - 2000))
    facts = (Fact("namespace", "Karrot"), Fact("sent", "50 data in 1 call"), Fact("groups left out", "0"))
    told = Report(
        at=instant(now_ms - 2000),
        sent_count=50,
        facts=facts,
        sent=(Sent("Lag {Cluster=prod-eu, ConsumerGroup=billing}", 120.0, "Count", instant(now_ms - 5000)),),
        refused=(
            RefusedDatum(
                "Lag {Cluster=prod-eu, ConsumerGroup=old}", "too_old", "It was long ago.", instant(now_ms - 90_000)
            ),
        ),
    )
    log.remember("cloudwatch", REPORT_NOTE, msgspec.json.encode(told))


def _statuses(website: Website) -> list[str]:
    return [state.summary.status_text for state in website.log.live()]


def _in_trouble(website: Website) -> bool:
    errors = [state for state in website.log.live() if state.summary.status_text == "ERR"]
    since = [state.incident.since_ms for state in errors if state.incident.since_ms]
    return "WARN" in _statuses(website) and any(website.clock.wall - each > 20_000 for each in since)


def _empty() -> Website:
    return _site()


def _healthy() -> Website:
    return _lived(_site(), lambda website: set(_statuses(website)) == {"OK"})


def _incident() -> Website:
    return _lived(_site(), _in_trouble)


def _silent() -> Website:
    """Make one Burrow silent for six minutes while the other one posts."""
    website = _incident()
    website.clock.advance(360_000)
    burrow = SimulatedBurrow(24, seed=8, speed=1, start_ms=website.clock.wall)
    for _ in range(30):
        website.clock.advance(1000)
        for event in burrow.due(website.clock.wall):
            if event.cluster == CLUSTERS[0]:
                website.client.post("/burrow", data=to_wire(event))
    return website


def _all_silent() -> Website:
    website = _incident()
    website.clock.advance(360_000)
    return website


def _failing() -> Website:
    """Let CloudWatch refuse the data, and post a body of Burrow's own template."""
    website = _incident()
    error = "AccessDenied: User: arn:aws:iam::123456789012:user/karrot is not authorized to perform: "
    _sent(website, state="failing", error=error + "cloudwatch:PutMetricData because no identity-based policy allows it")
    for minute in range(3):
        website.log.reject(
            Reject(
                website.clock.wall - 60_000 * minute,
                "unsupported_template",
                f"The field $.{'_'.join(['a_long_name'] * 12)} is one of default-http-post.tmpl of Burrow.",
                Source.WEBHOOK,
                b'{"api_key":"secret","events":[{"id":"x","event":{"severity":"WARN"}}],"'
                + b"long_name" * 20
                + b'":1}',
            )
        )
    return website


def _only_bad() -> Website:
    website = _site()
    for number in range(12):
        website.context.intake.accept(_told(website, f"team-{number}", "WARN", 1000 + number))
    return website


def _many() -> Website:
    """Make 10,000 groups; the first ones by name have a history."""
    website = _site(max_consumers=10_000)
    for lap, groups in enumerate((120, 120, 120, 120, 10_000)):
        for number in range(groups):
            status = "ERR" if number % 1500 == 7 else "WARN" if number % 160 == 3 else "OK"
            name = f"team-{number % 40:02}-{_WORK[number % len(_WORK)]}-consumer-{number:05}"
            event = _told(website, name, status, number * (lap + 1) % 70_001)
            website.log.append(event, to_wire(event))
        website.clock.advance(10_000)
    return website


def _markup() -> Website:
    website = _site()
    for lag in _LAGS:
        for name in (MARKUP, "orders/v1 ünï 名前 🥕", "a-very-long-name-" * 12):
            website.context.intake.accept(_told(website, name, "ERR" if name == MARKUP else "OK", lag, cluster=MARKUP))
        website.clock.advance(10_000)
    return website


def _replicas() -> Website:
    """Let two replicas share the event log."""
    clock = ManualClock()
    return _lived(_site(clock=clock, log=ReplicatedLog(clock)), _in_trouble)


def _database_away() -> Website:
    """Let the database of the event log be away for three quarters of a minute."""
    website = _replicas()
    assert isinstance(website.log, ReplicatedLog)
    website.log.away_ms = 45_000
    return website


def _no_leader() -> Website:
    website = _replicas()
    assert isinstance(website.log, ReplicatedLog)
    website.log.leading = None
    return website


def _told(website: Website, consumer: str, status: str, lag: int, cluster: str = "prod-eu") -> LagEvent:
    return make_event(
        cluster=cluster,
        consumer=consumer,
        status_text=status,
        total_lag=lag,
        observed_at_ms=website.clock.wall,
        incident_id=None if status == "OK" else f"incident of {consumer}",
    )


STATES: Mapping[str, Callable[[], Website]] = {
    "empty": _empty,
    "healthy": _healthy,
    "incident": _incident,
    "silent": _silent,
    "all-silent": _all_silent,
    "failing": _failing,
    "only-bad": _only_bad,
    "many": _many,
    "markup": _markup,
    "replicas": _replicas,
    "database-away": _database_away,
    "no-leader": _no_leader,
}
"""The function that makes each state, by name."""
