"""AWS refuses Karrot's credentials: Karrot reports the error and recovers soon after its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, point_aws_at
from support.reporters.cloudwatch_service.request_handler import Refuse
from support.reporters.fake_aws import FakeAws
from support.reporters.injected_faults import (
    ACCESS_DENIED,
    EXPIRED_TOKEN,
    SIGNATURE_DOES_NOT_MATCH,
    UNRECOGNIZED_CLIENT,
)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudWatchRig]:
    clock = ManualClock()
    with FakeAws(clock_ms=clock.wall_ms) as fake:
        point_aws_at(fake, monkeypatch)
        yield CloudWatchRig(fake, clock)


def run(rig: CloudWatchRig) -> None:
    """Run for two minutes, with a verdict every 30 seconds."""
    for number in range(4):
        rig.tell(total_lag=number)
        rig.run(30)


def assert_it_fails(rig: CloudWatchRig, because: str, word: str) -> None:
    (state,) = rig.log.reporters()
    assert (state.state, rig.points()) == ("failing", [])
    assert word in str(state.last_error)
    assert set(rig.counted("karrot_reporter_failures_total", "reason")) == {because}


def assert_it_recovers(rig: CloudWatchRig) -> None:
    """Assert that only the newest value is sent, within a minute."""
    rig.tell(total_lag=99)
    rig.run(60)
    assert rig.log.reporters()[0].state == "ok"
    assert [value for _, value in rig.points()] == [99.0]


@pytest.mark.parametrize(
    ("refusal", "because"),
    [
        (ACCESS_DENIED, "permission"),
        (EXPIRED_TOKEN, "credentials"),
        pytest.param(UNRECOGNIZED_CLIENT, "credentials", marks=pytest.mark.deep),
        pytest.param(SIGNATURE_DOES_NOT_MATCH, "credentials", marks=pytest.mark.deep),
    ],
    ids=lambda value: value.code if isinstance(value, Refuse) else "",
)
def test_an_aws_error_is_reported_and_its_end_is_noticed_within_a_minute(
    rig: CloudWatchRig, refusal: Refuse, because: str
) -> None:
    rig.fake.stand(refusal)
    run(rig)
    assert_it_fails(rig, because, refusal.code)
    rig.fake.clear()
    assert_it_recovers(rig)


def test_missing_credentials_are_reported_and_found_within_a_minute_of_their_return(
    rig: CloudWatchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    run(rig)
    assert_it_fails(rig, "credentials", "credentials")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDBACK")
    assert_it_recovers(rig)
    assert {call.access_key for call in rig.fake.calls} == {"AKIDBACK"}


def test_a_missing_token_file_is_reported_and_read_once_it_exists(
    rig: CloudWatchRig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/karrot")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    run(rig)
    assert_it_fails(rig, "credentials", "token")
    token.write_text("token")
    assert_it_recovers(rig)
