"""The token for Amazon MSK is a presigned URL in base64, as MSK's brokers check it."""

import base64
import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import ReadOnlyCredentials

from karrot.kafka.client_properties import NoToken
from karrot.kafka.msk_iam_token import TokenSource, region_of, token
from karrot.reporters.kafka.producer import KafkaTopic
from karrot.reporters.kafka.reporter import NoTopic
from karrot.settings.options import Kafka
from karrot.settings.types import Secret
from karrot.watch.cluster_interface import ClusterError, NotConnected, connect
from karrot.watch.kafka_admin import KafkaCluster

KEYS = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI", "a session")


def test_a_token_is_a_presigned_url_without_the_secret() -> None:
    made = token(KEYS, "eu-west-1")
    assert "=" not in made
    url = base64.urlsafe_b64decode(made + "=" * (-len(made) % 4)).decode()
    parts, query = urlsplit(url), parse_qs(urlsplit(url).query)
    assert parts.netloc == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Expires"] == ["900"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Security-Token"] == ["a session"]
    assert query["X-Amz-SignedHeaders"] == ["host"]
    assert len(query["X-Amz-Signature"][0]) == 64
    assert query["User-Agent"] == ["karrot"]
    assert "wJalrXUtnFEMI" not in url


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("b-1.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
        ("kafka:9092", None),
    ],
)
def test_the_region_is_read_from_the_name_of_a_broker(address: str, region: str | None) -> None:
    assert region_of([address]) == region


def test_a_source_finds_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    made, ends = TokenSource(["kafka:9092"], lambda: 1000.0)("")
    assert ends == 1900
    assert "eu-central-1" in base64.urlsafe_b64decode(made + "=" * (-len(made) % 4)).decode()


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Take away every source of AWS credentials and Regions."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def trouble_of(source: TokenSource) -> tuple[str, str]:
    with pytest.raises(NoToken) as raised:
        source()
    assert source.failure == str(raised.value)
    return raised.value.reason, source.failure


def test_a_missing_region_is_reported_at_the_start(no_aws: pytest.MonkeyPatch) -> None:
    del no_aws
    with pytest.raises(ValueError, match="AWS_MSK_IAM needs a Region: set AWS_REGION"):
        TokenSource(["kafka:9092"], lambda: 0.0)


BROKER = "b-1.x.c2.kafka.eu-west-1.amazonaws.com:9098"
NOWHERE = "http://127.0.0.1:9/v1/credentials"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "Unable to locate credentials"),
        ({"AWS_PROFILE": "nowhere"}, "The config profile (nowhere) could not be found"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": NOWHERE}, "Error when retrieving credentials from container-role"),
        (
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/k"},
            "No such file or directory: '/nowhere/token'",
        ),
    ],
)
def test_credentials_that_aws_does_not_give_are_one_sentence_and_no_error_of_botocore(
    no_aws: pytest.MonkeyPatch, environment: dict[str, str], said: str
) -> None:
    no_aws.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    for name, value in environment.items():
        no_aws.setenv(name, value)
    reason, trouble = trouble_of(TokenSource([BROKER], lambda: 0.0))
    assert reason == "credentials"
    assert trouble.startswith("AWS_MSK_IAM has no token: ")
    assert said in trouble
    assert "\n" not in trouble


def test_credentials_that_come_late_are_found_by_the_next_call(no_aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_aws.setenv("AWS_PROFILE", "late")
    source = TokenSource([BROKER], lambda: 0.0)
    trouble_of(source)
    (tmp_path / "credentials").write_text("[late]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = x\n")
    source()
    assert source.failure == ""


def test_the_client_of_kafka_says_why_there_is_no_token(no_aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own message would be "OAuth token not set within 10 seconds timeout"."""
    no_aws.setenv("AWS_PROFILE", "nowhere")
    given = "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM"
    with pytest.raises(NotConnected, match=r"^AWS_MSK_IAM has no token: .*profile \(nowhere\)") as raised:
        connect([BROKER], Secret(given))
    assert raised.value.reason == "credentials"
    file = tmp_path / "client.properties"
    file.write_text(given)
    options = Kafka((BROKER,), properties=file)
    with pytest.raises(NoTopic, match=r"^AWS_MSK_IAM has no token: .*profile \(nowhere\)") as refused:
        KafkaTopic(options)
    assert refused.value.reason == "credentials"


def test_a_token_that_can_no_longer_be_renewed_is_in_the_error_of_the_poll() -> None:
    def source(_config: str) -> tuple[str, float]:
        return "a token", 1e12

    source.failure = "AWS_MSK_IAM has no token: because"  # type: ignore[attr-defined]
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": source,
    }
    with pytest.raises(ClusterError, match="AWS_MSK_IAM has no token: because"):
        KafkaCluster(properties, timeout_s=0.5).groups()
