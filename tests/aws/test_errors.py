"""Every part of Karrot that calls AWS explains botocore's exceptions with the same catalogue, without secrets."""

import tomllib
from pathlib import Path

import pytest
from botocore import exceptions as boto

from karrot.eventlog.postgres.connections import DatabaseUrl
from karrot.eventlog.postgres.passwords import password_of
from karrot.reporters.archive.s3 import explained
from karrot.reporters.archive.segment_store import StoreError
from karrot.settings.options import Settings

ROOT = Path(__file__).resolve().parents[2]
SECRET = "wJalrXUtnFEMIwJalrXUtnFEMIwJalrXUtnFEMIwJalr"


def test_every_module_that_may_import_botocore_uses_the_catalogue() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"].startswith("boto3 lives")]
    homes = {each.split(" -> ")[0] for each in contract["ignore_imports"]} - {"karrot.aws.classify_errors"}
    for home in homes:
        place = ROOT / home.removesuffix(".**").replace(".", "/")
        files = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else list(place.rglob("*.py"))
        assert any("fault_of(" in file.read_text() for file in files), home


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [
        (boto.ProfileNotFound(profile="x"), "credentials", "The config profile (x) could not be found"),
        (
            boto.CredentialRetrievalError(provider="custom-process", error_msg=SECRET),
            "credentials",
            "the credential_process of the AWS configuration failed",
        ),
        (boto.NoRegionError(), "unavailable", "The AWS Region or the endpoint is missing or wrong"),
        (
            boto.ClientError(
                {
                    "Error": {"Code": "AccessDenied", "Message": "no"},
                    "ResponseMetadata": {"HTTPStatusCode": 403},  # type: ignore[typeddict-item]
                },
                "PutObject",
            ),
            "permission",
            "PutObject was answered 403 AccessDenied: no",
        ),
        (
            boto.ClientError(
                {
                    "Error": {"Code": "ExpiredToken", "Message": "old"},
                    "ResponseMetadata": {"HTTPStatusCode": 400},  # type: ignore[typeddict-item]
                },
                "AssumeRoleWithWebIdentity",
            ),
            "credentials",
            "AssumeRoleWithWebIdentity was answered 400 ExpiredToken: old",
        ),
    ],
)
def test_errors_of_the_archive_on_s3_are_sentences_without_secrets(error: Exception, reason: str, said: str) -> None:
    with pytest.raises(StoreError) as raised, explained("a segment cannot be stored"):
        raise error
    assert raised.value.reason == reason
    assert str(raised.value).startswith("a segment cannot be stored: ")
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_token_for_rds_that_aws_does_not_give_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    password = password_of(Settings(event_log_rds_iam=True), DatabaseUrl.parse("postgresql://karrot@db/karrot"))
    with pytest.raises(ValueError, match=r"KARROT_EVENT_LOG_RDS_IAM: .*The config profile \(nowhere\)"):
        password()
