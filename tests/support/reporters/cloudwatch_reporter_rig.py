"""Runs the CloudWatch reporter with the fake CloudWatch, on a clock that the test sets."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from karrot.delivery import Feed
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import REPORT_NOTE, Report, read_report
from karrot.reporters.cloudwatch import build
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

NAME = "cloudwatch"


def aws_environment(url: str) -> dict[str, str]:
    """Return an environment in which the real client calls the fake at ``url``, without this machine's AWS settings."""
    return {
        "AWS_ENDPOINT_URL_CLOUDWATCH": url,
        "AWS_ENDPOINT_URL_STS": url,
        "AWS_ACCESS_KEY_ID": "AKIDTEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-west-1",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def point_aws_at(fake: ScriptedCloudWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set that environment for this process."""
    for name, value in aws_environment(fake.url).items():
        monkeypatch.setenv(name, value)


@dataclass
class CloudWatchRig:
    """A reporter with a fake: `tell` it events, let time pass with `run`, then check ``fake``."""

    fake: ScriptedCloudWatch
    clock: ManualClock
    settings: dict[str, str] = field(default_factory=dict)
    log: MemoryEventLog = field(init=False)
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.log = MemoryEventLog(self.clock)
        self.restart()

    def restart(self, **settings: str) -> None:
        """Let a new process take over, optionally with other settings; it knows only the log."""
        context = make_context(NAME, self.settings | settings, log=self.log, clock=self.clock)
        self.feed = Feed(NAME, self.log, self.clock, Random(1), lambda: build(context))

    def tell(self, *, age_ms: int = 0, **overrides: Any) -> None:
        """Append an event that is observed now, or was ``age_ms`` ago."""
        overrides = {"observed_at_ms": self.clock.wall - age_ms, **overrides}
        append_event(self.log, age_ms=age_ms, **overrides)

    def run(self, seconds: float) -> None:
        """Let the delivery thread do its work for a while, in steps of half a second."""
        for _ in range(round(seconds * 2)):
            self.clock.advance(500)
            while self.feed.step() == 0:
                pass

    def points(self, metric: str = "Lag", consumer: str = "orders-svc", cluster: str = "prod-eu") -> list[Any]:
        """Return the (timestamp, value) pairs of a group's metric in the fake."""
        dimensions = {"Cluster": cluster, "ConsumerGroup": consumer}
        return [(point.timestamp_ms, point.value) for point in self.fake.points("Karrot", metric, dimensions)]

    def report(self) -> Report:
        """Return the reporter's report on its last send."""
        report = read_report(self.log.recall(NAME, REPORT_NOTE))
        assert report is not None
        return report

    def dropped(self) -> dict[str, float]:
        """Return the number of values that were not sent, by reason."""
        return self.counted("karrot_reporter_dropped_total", "reason")

    def counted(self, name: str, label: str) -> dict[str, float]:
        """Return the values of a counter by one of its labels."""
        return {dict(each.labels)[label]: each.value for each in self.log.counters() if each.name == name}
