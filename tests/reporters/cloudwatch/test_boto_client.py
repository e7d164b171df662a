"""The boto3 client that Karrot opens: its fixed settings, boto3's own settings, and its credentials."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from karrot.aws.classify_errors import FaultKind, fault_of
from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.settings.options import CloudWatch as Options
from support.reporters import injected_faults as aws
from support.reporters.cloudwatch_datum import NOW_MS, make_datum
from support.reporters.fake_aws import FakeAws

ROLE = "arn:aws:iam::123456789012:role/karrot"


def put(environ: Mapping[str, str], options: Options | None = None, *, times: int = 1) -> None:
    """Send this number of data through one client."""
    with closing(open_client(options or Options(), environ)) as client:
        for _ in range(times):
            client.put_metric_data(Namespace="Karrot", MetricData=[make_datum().wire()])


def endpoint(environ: Mapping[str, str]) -> str:
    with closing(open_client(Options(), environ)) as client:
        return client.meta.endpoint_url


def keys(fake: FakeAws) -> list[str]:
    return [call.access_key for call in fake.calls]


def test_time_limits_and_attempts_are_karrots_for_any_environment(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, fake: FakeAws
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("AWS_RETRY_MODE", "legacy")
    with closing(open_client(Options(), environ)) as client:
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (2, 5)
    fake.stand(aws.UNAVAILABLE)
    with pytest.raises(ClientError):
        put(environ)
    assert [call.status for call in fake.calls] == [503, 503]


def test_a_temporary_failure_is_retried_once_within_a_call(environ: Mapping[str, str], fake: FakeAws) -> None:
    fake.script(aws.INTERNAL_ERROR)
    put(environ)
    assert [call.status for call in fake.calls] == [500, 200]


def test_requests_are_signed_for_the_region_that_was_found(environ: Mapping[str, str], fake: FakeAws) -> None:
    put(environ)
    assert [(call.region, call.access_key) for call in fake.calls] == [("eu-west-1", "AKIDTEST")]


def test_a_profiles_region_is_read_last(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, fake: FakeAws, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_REGION")
    (tmp_path / "config").write_text("[default]\nregion = sa-east-1\n")
    put(environ)
    put(environ, Options(default_region="us-east-1"))
    assert [call.region for call in fake.calls] == ["sa-east-1", "us-east-1"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, "https://monitoring.us-east-1.amazonaws.com"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "https://monitoring-fips.us-east-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "https://monitoring.us-east-1.api.aws"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1"),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_CLOUDWATCH": "http://127.0.0.1:2"},
            "http://127.0.0.1:2",
        ),
    ],
    ids=["the region's endpoint", "FIPS", "dual stack", "an endpoint for every service", "an endpoint for CloudWatch"],
)
def test_endpoints_are_left_to_boto3(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str], expected: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for name, text in names.items():
        monkeypatch.setenv(name, text)
    assert endpoint(environ) == expected


# --- roles ---


def test_a_role_is_assumed_with_karrots_own_credentials(environ: Mapping[str, str], fake: FakeAws) -> None:
    put(environ, Options(iam_role=ROLE), times=2)
    (assumed,) = fake.assumed
    assert (assumed.role_arn, assumed.session, assumed.by_access_key, assumed.region) == (
        ROLE,
        "karrot",
        "AKIDTEST",
        "eu-west-1",
    )
    assert keys(fake) == [assumed.access_key, assumed.access_key]


def test_the_same_client_assumes_a_role_again_before_it_expires(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeAws(clock_ms=lambda: NOW_MS, credential_seconds=300) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
        put(environ, Options(iam_role=ROLE), times=3)
        assert len(set(keys(fake))) == 3
        assert set(keys(fake)) <= set(fake.issued)


def test_a_role_can_be_assumed_by_a_web_identity(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, fake: FakeAws, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text("a-token")
    put(environ, Options(iam_role=ROLE))
    pod, karrot = fake.assumed
    assert (pod.role_arn, karrot.role_arn) == ("arn:aws:iam::123456789012:role/pod", ROLE)
    assert karrot.by_access_key == pod.access_key
    assert keys(fake) == [karrot.access_key]


def test_a_role_needs_credentials_that_may_assume_it(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(NoCredentialsError):
        open_client(Options(iam_role=ROLE), environ)


def test_a_role_that_may_not_be_assumed_is_a_permission_fault(environ: Mapping[str, str], fake: FakeAws) -> None:
    fake.sts_faults.stand(aws.ACCESS_DENIED)
    with pytest.raises(ClientError) as caught:
        put(environ, Options(iam_role=ROLE))
    verdict = fault_of(caught.value)
    assert verdict.kind is FaultKind.PERMISSION
    assert verdict.text.startswith("AssumeRole was answered 403 AccessDenied")


def test_the_credentials_of_a_container_work(
    environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, fake: FakeAws
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", fake.credentials_url)
    put(environ)
    assert keys(fake) == fake.issued


def test_botocore_is_imported_only_with_the_first_client() -> None:
    code = (
        "import sys, karrot.reporters.cloudwatch.sender, karrot.reporters.cloudwatch.boto_client\n"
        "sys.exit('botocore' in sys.modules or 'boto3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
