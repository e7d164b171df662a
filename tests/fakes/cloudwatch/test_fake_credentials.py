"""The real client gets credentials and a Region from the fake in all of its own ways."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from support.reporters.fake_aws import Assumed, FakeAws
from support.reporters.fake_cloudwatch_client import NOW_MS, client_error, put_metric_data, send_http
from support.reporters.injected_faults import ACCESS_DENIED, RESET, UNAVAILABLE

ROLE = "arn:aws:iam::210987654321:role/monitoring/karrot"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, fake: FakeAws) -> pytest.MonkeyPatch:
    """Set up an environment without AWS credentials in which the fake is both services."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", fake.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", fake.url)
    return monkeypatch


def put_one(session: boto3.Session) -> None:
    with closing(session.client("cloudwatch")) as cloudwatch:
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "Lag", "Value": 1.0}])


def assume(fake: FakeAws, **parameters: Any) -> dict[str, Any]:
    arguments: Any = {"RoleArn": ROLE, "RoleSessionName": "karrot", **parameters}
    session = boto3.Session(aws_access_key_id="AKIDTEST", aws_secret_access_key="secret", region_name="eu-west-1")
    with closing(session.client("sts", endpoint_url=fake.url)) as sts:
        return dict(sts.assume_role(**arguments))


def test_a_role_is_assumed(fake: FakeAws) -> None:
    before = datetime.now(UTC)
    answer = assume(fake)
    credentials = answer["Credentials"]
    assert fake.assumed == [Assumed(ROLE, "karrot", "AKIDTEST", credentials["AccessKeyId"], "eu-west-1")]
    assert fake.issued == [credentials["AccessKeyId"]]
    assert answer["AssumedRoleUser"]["Arn"] == "arn:aws:sts::210987654321:assumed-role/karrot/karrot"
    assert timedelta(minutes=59) < credentials["Expiration"] - before < timedelta(minutes=61)


def test_credentials_are_valid_for_the_requested_time() -> None:
    with FakeAws(clock_ms=lambda: NOW_MS, credential_seconds=60) as fake:
        left = assume(fake)["Credentials"]["Expiration"] - datetime.now(UTC)
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)


def test_the_client_that_assumed_a_role_signs_with_its_key(fake: FakeAws, bare: pytest.MonkeyPatch) -> None:
    credentials = assume(fake)["Credentials"]
    bare.setenv("AWS_ACCESS_KEY_ID", credentials["AccessKeyId"])
    bare.setenv("AWS_SECRET_ACCESS_KEY", credentials["SecretAccessKey"])
    bare.setenv("AWS_SESSION_TOKEN", credentials["SessionToken"])
    put_one(boto3.Session())
    assert [(call.access_key, call.region) for call in fake.calls] == [(fake.issued[0], "eu-central-1")]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        pytest.param({"RoleArn": "arn:aws:iam::1:user/karrot/long"}, "ValidationError", id="a user instead of a role"),
        pytest.param({"RoleSessionName": "a b"}, "ValidationError", id="a space in the name of the session"),
    ],
)
def test_sts_refuses_an_invalid_role_or_session_name(fake: FakeAws, wrong: dict[str, str], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        assume(fake, **wrong)
    assert caught.value.response["Error"]["Code"] == code
    assert fake.issued == []


def test_sts_has_faults_of_its_own(fake: FakeAws) -> None:
    fake.sts_faults.add(ACCESS_DENIED)
    with pytest.raises(ClientError) as caught:
        assume(fake)
    assert caught.value.response["Error"]["Code"] == "AccessDenied"
    assert assume(fake)["Credentials"]["AccessKeyId"] == fake.issued[0]


def test_a_role_whose_answer_was_lost_is_not_assumed(fake: FakeAws, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_MAX_ATTEMPTS", "1")
    fake.sts_faults.stand(RESET)
    with pytest.raises(ConnectionClosedError):
        assume(fake)
    assert (fake.assumed, fake.issued) == ([], [])


def test_clear_ends_the_faults_of_sts_too(fake: FakeAws) -> None:
    fake.sts_faults.stand(UNAVAILABLE)
    fake.clear()
    assume(fake)


def test_sts_refuses_an_unsigned_request(fake: FakeAws) -> None:
    body = f"Action=AssumeRole&RoleArn={ROLE}&RoleSessionName=karrot".encode()
    answer = send_http(fake, body, authorization=None, content_type="application/x-www-form-urlencoded")
    assert (answer.status, b"MissingAuthenticationToken" in answer.body) == (403, True)


def test_sts_serves_no_other_action(fake: FakeAws) -> None:
    form = {"content_type": "application/x-www-form-urlencoded", "x_amz_target": None}
    answer = send_http(fake, b"Action=GetFederationToken", **form)
    assert (answer.status, answer.code) == (400, "InvalidAction;Sender")


def test_a_web_identity_assumes_its_role(fake: FakeAws, bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.web.token")
    bare.setenv("AWS_ROLE_ARN", ROLE)
    bare.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    bare.setenv("AWS_ROLE_SESSION_NAME", "pod")
    put_one(boto3.Session())
    assert fake.assumed == [Assumed(ROLE, "pod", "", fake.issued[0], "")]
    assert [call.access_key for call in fake.calls] == fake.issued


def test_a_container_gets_its_tasks_credentials(fake: FakeAws, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", fake.credentials_url)
    put_one(boto3.Session())
    assert [call.access_key for call in fake.calls] == fake.issued


def test_an_expired_key_is_refused_and_the_next_one_is_not(fake: FakeAws, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", fake.credentials_url)
    session = boto3.Session()
    put_one(session)
    fake.expire(*fake.issued)
    with pytest.raises(ClientError) as caught:
        put_one(session)
    assert caught.value.response["Error"]["Code"] == "ExpiredToken"
    put_one(boto3.Session())
    assert [(call.status, call.access_key) for call in fake.calls] == [
        (200, fake.issued[0]),
        (403, fake.issued[0]),
        (200, fake.issued[1]),
    ]


def test_an_expired_key_assumes_no_role(fake: FakeAws) -> None:
    fake.expire("AKIDTEST")
    with pytest.raises(ClientError) as caught:
        assume(fake)
    assert caught.value.response["Error"]["Code"] == "ExpiredToken"
    assert client_error(fake, {"MetricName": "Lag", "Value": 1.0})[0] == "ExpiredToken"


def test_the_metadata_of_a_task_give_the_region() -> None:
    with FakeAws(clock_ms=lambda: NOW_MS, region="ap-southeast-2") as fake:
        with urlopen(f"{fake.task_metadata_url}/task") as answer:
            task = json.load(answer)
        put_metric_data(fake, {"MetricName": "Lag", "Value": 1.0})
    assert task["TaskARN"].startswith("arn:aws:ecs:ap-southeast-2:123456789012:task/")
    assert task["AvailabilityZone"] == "ap-southeast-2a"
