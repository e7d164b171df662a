"""The token for Amazon MSK is a presigned URL in base64, as MSK's brokers check it."""

import base64
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import ReadOnlyCredentials

from karrot.kafka.msk_iam_token import region_of, token, token_source

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
    made, ends = token_source(["kafka:9092"], lambda: 1000.0)("")
    assert ends == 1900
    assert "eu-central-1" in base64.urlsafe_b64decode(made + "=" * (-len(made) % 4)).decode()


def test_missing_credentials_or_region_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ValueError, match="AWS_REGION"):
        token_source(["kafka:9092"], lambda: 0.0)
    with pytest.raises(ValueError, match="credentials"):
        token_source(["b-1.x.c2.kafka.eu-west-1.amazonaws.com:9098"], lambda: 0.0)
