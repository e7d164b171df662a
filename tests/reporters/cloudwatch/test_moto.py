"""Requests to moto are really signed and checked, with a key whose policy really allows them.

moto does not check AWS's limits; the strict fake does (`support.reporters.cloudwatch_service`).
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from moto import mock_aws
from moto.core import set_initial_no_auth_action_count

from karrot.aws.classify_errors import FaultKind
from karrot.reporters.cloudwatch.data import Datum
from karrot.settings.options import CloudWatch as Options
from support.reporters.cloudwatch_sender_rig import SenderRig, lag_data

PUBLISH = {
    "Effect": "Allow",
    "Action": "monitoring:PutMetricData",
    "Resource": "*",
}  # moto's name; AWS calls it cloudwatch:
ASSUME = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}


@pytest.fixture(autouse=True)
def moto(bare_environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with mock_aws():  # which sets some keys
        yield bare_environ


def policy(*statements: Mapping[str, str]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def sign_as_a_user(monkeypatch: pytest.MonkeyPatch, *statements: Mapping[str, str]) -> None:
    """Set the credentials of the environment to those of a user with this policy."""
    iam = boto3.client("iam", region_name="eu-west-1")
    iam.create_user(UserName="karrot")
    iam.put_user_policy(UserName="karrot", PolicyName="karrot", PolicyDocument=policy(*statements))
    key = iam.create_access_key(UserName="karrot")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])


def role_that_may_publish() -> str:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    iam = boto3.client("iam", region_name="eu-west-1")
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName="karrot", AssumeRolePolicyDocument=document)["Role"]
    iam.put_role_policy(RoleName="karrot", PolicyName="karrot", PolicyDocument=policy(PUBLISH))
    arn: str = role["Arn"]
    return arn


def maximum(datum: Datum) -> list[tuple[datetime, float, str]]:
    """Return the points of the datum's metric by an alarm's statistic."""
    at = datetime.fromtimestamp(datum.timestamp_ms / 1000, UTC)
    answer = boto3.client("cloudwatch", region_name="eu-west-1").get_metric_statistics(
        Namespace="Karrot",
        MetricName=datum.metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in datum.dimensions],
        StartTime=at - timedelta(minutes=2),
        EndTime=at + timedelta(minutes=2),
        Period=60,
        Statistics=["Maximum"],
    )
    return [(point["Timestamp"], point["Maximum"], point["Unit"]) for point in answer["Datapoints"]]


def test_sent_data_can_be_read_back(moto: Mapping[str, str]) -> None:
    data = lag_data(1500)
    world = SenderRig(moto)
    with world.sender() as sender:
        outcome = sender.send(data)
    assert (outcome.delivered, outcome.fault, world.statuses) == (data, None, ["200", "200"])
    assert maximum(data[1234]) == [(datetime.fromtimestamp(data[1234].timestamp_ms / 1000, UTC), 1234.0, "Count")]


# The first calls set up the test and are not checked; from then on signatures and policies are checked.


@set_initial_no_auth_action_count(3)
def test_a_request_is_accepted_for_its_signature(moto: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sign_as_a_user(monkeypatch, PUBLISH)
    monkeypatch.setenv("AWS_DISABLE_REQUEST_COMPRESSION", "true")  # moto compares the signature of the inflated body
    with SenderRig(moto).sender() as sender:
        assert sender.send(lag_data(100)).delivered


@set_initial_no_auth_action_count(3)
def test_a_wrong_secret_is_a_credentials_fault(moto: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sign_as_a_user(monkeypatch, PUBLISH)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with SenderRig(moto).sender() as sender:
        fault = sender.send(lag_data(1)).fault
    assert fault is not None
    assert fault.kind is FaultKind.CREDENTIALS
    assert "SignatureDoesNotMatch" in fault.text


@set_initial_no_auth_action_count(3)
def test_a_policy_without_put_metric_data_is_a_permission_fault(
    moto: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_as_a_user(monkeypatch, ASSUME)
    with SenderRig(moto).sender() as sender:
        fault = sender.send(lag_data(1)).fault
    assert fault is not None
    assert fault.kind is FaultKind.PERMISSION
    assert "user/karrot is not authorized to perform: monitoring:PutMetricData" in fault.text


@set_initial_no_auth_action_count(5)
def test_a_role_may_publish_though_its_user_may_not(moto: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    role = role_that_may_publish()
    sign_as_a_user(monkeypatch, ASSUME)
    with SenderRig(moto, Options(iam_role=role)).sender() as sender:
        assert sender.send(lag_data(1)).delivered
    with SenderRig(moto).sender() as sender:
        assert not sender.send(lag_data(1)).delivered
