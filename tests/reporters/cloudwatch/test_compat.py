"""``KARROT_COMPAT=2019`` publishes the metrics of the first Karrot under their old names."""

import json
from collections.abc import Iterator

import pytest

from karrot.burrow.payload import parse_webhook
from karrot.eventlog.event_log import EventLog
from karrot.settings.loading import load
from support.burrow.recorded_bodies import recorded_body, recorded_posts
from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, point_aws_at
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

NAMESPACE = "GumGum/Kafka/Burrow/ConsumerLag"
REGION = "us-east-1"


@pytest.fixture
def fake(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedCloudWatch]:
    with ScriptedCloudWatch(clock_ms=clock.wall_ms) as serving:
        point_aws_at(serving, monkeypatch)
        monkeypatch.delenv("AWS_REGION")
        yield serving


@pytest.fixture
def rig(fake: ScriptedCloudWatch, clock: ManualClock) -> CloudWatchRig:
    settings = load({"KARROT_COMPAT": "2019"}).settings
    assert settings.reporters == ("prometheus", "cloudwatch")
    return CloudWatchRig(fake, clock, {"compat": "2019"})


def as_the_first_karrot_sent(body: bytes) -> dict[str, object]:
    """Return the first Karrot's datum for an event: only the group as the metric and the total lag as its value."""
    event = json.loads(body)["Event"]
    return {"MetricName": event["Group"], "Value": float(event["Result"]["totallag"])}


def take(log: EventLog, body: bytes, clock: ManualClock) -> None:
    log.append(parse_webhook(body, observed_at_ms=clock.wall), body)


@pytest.mark.parametrize(
    "name", ["karrot_v1.9.5_warn.json", "karrot_v1.9.5_err_stop.json", "karrot_v1.9.5_group_dots_spaces_slashes.json"]
)
def test_an_event_gives_the_same_datum_as_in_the_first_karrot(rig: CloudWatchRig, name: str) -> None:
    body = recorded_body(name)
    take(rig.log, body, rig.clock)
    rig.run(3)
    assert [{"MetricName": each.id.metric, "Value": each.values[0]} for each in rig.fake.accepted] == [
        as_the_first_karrot_sent(body)
    ]
    assert {(each.id.namespace, each.id.dimensions, each.unit) for each in rig.fake.accepted} == {(NAMESPACE, (), None)}


def test_the_recorded_conversation_ends_with_the_last_values_of_the_first_karrot(
    rig: CloudWatchRig,
) -> None:
    # Without Burrow's own group: the first Karrot sent it too, but it is of no use for scaling.
    last: dict[str, float] = {}
    began = recorded_posts()[0][0]
    for at, body in recorded_posts():
        rig.clock.wall = int(1_800_000_000_000 + 1000 * (at - began))
        take(rig.log, body, rig.clock)
        event = json.loads(body)["Event"]
        last[event["Group"]] = float(event["Result"]["totallag"])
        rig.run(1)
    rig.run(60)
    del last["burrow-stack"]
    assert {name: rig.fake.points(NAMESPACE, name)[-1].value for name in last} == last
    assert {metric.metric for metric in rig.fake.metrics()} == set(last)
    assert {call.region for call in rig.fake.calls} == {REGION}
