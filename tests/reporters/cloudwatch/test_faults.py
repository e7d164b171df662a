"""Every failure of AWS, the network or the configuration that boto3 raises becomes a fault with its kind."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import exceptions as boto
from botocore.config import Config

from karrot.aws.classify_errors import Fault, FaultKind, fault_of, without_secrets
from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.settings.options import CloudWatch as Options
from support.reporters import injected_faults as aws
from support.reporters.cloudwatch_datum import NOW_MS, make_datum
from support.reporters.cloudwatch_service.request_handler import Refuse
from support.reporters.injected_faults import RefuseByShape
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

K = FaultKind
ROLE = "arn:aws:iam::123456789012:role/karrot"


def raised_by(act: Callable[[], object]) -> Exception:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the test checks every error
        return error
    raise AssertionError("nothing was raised")


def put() -> None:
    """Send one datum through Karrot's own client."""
    with closing(open_client(Options(), os.environ)) as client:
        client.put_metric_data(Namespace="Karrot", MetricData=[make_datum().wire()])


@cache
def _session() -> boto3.Session:
    return boto3.Session(aws_access_key_id="AKIDTEST", aws_secret_access_key="secret", region_name="eu-west-1")


def put_once(url: str, *, seconds: float = 5, **members: Any) -> None:
    """Send one datum in one attempt, with a short timeout on request."""
    retries: Any = {"mode": "standard", "total_max_attempts": 1}
    config = Config(retries=retries, read_timeout=seconds, connect_timeout=seconds)
    with closing(_session().client("cloudwatch", endpoint_url=url, config=config)) as client:
        client.put_metric_data(Namespace="Karrot", MetricData=[make_datum().wire() | members])


def refuse(status: int, shape: str, text: str = "", code: str | None = None) -> Refuse:
    return RefuseByShape(status, shape, shape, text) if code is None else Refuse(status, code, shape, text)


# --- answers ---

FAULTS: dict[str, tuple[Refuse, FaultKind]] = {
    "500": (aws.INTERNAL_ERROR, K.UNAVAILABLE),
    "500, shape": (refuse(500, "InternalServiceFault"), K.UNAVAILABLE),
    "503 without a body": (aws.UNAVAILABLE, K.UNAVAILABLE),
    "504 of a proxy": (Refuse(504, "", "", ""), K.UNAVAILABLE),
    "408": (refuse(400, "RequestTimeoutException"), K.UNAVAILABLE),
    "throttling": (aws.THROTTLING, K.THROTTLED),
    "throttling, shape": (aws.THROTTLING_WITHOUT_QUERY_ERROR, K.THROTTLED),
    "request limit": (aws.REQUEST_LIMIT_EXCEEDED, K.THROTTLED),
    "429 without a body": (aws.TOO_MANY_REQUESTS, K.THROTTLED),
    "access denied": (aws.ACCESS_DENIED, K.PERMISSION),
    "access denied, shape": (refuse(403, "AccessDeniedException"), K.PERMISSION),
    "403 without a body": (Refuse(403, "", "", ""), K.PERMISSION),
    "opt in": (refuse(403, "OptInRequired"), K.PERMISSION),
    "wrong signature": (aws.SIGNATURE_DOES_NOT_MATCH, K.CREDENTIALS),
    "wrong signature, shape": (refuse(403, "InvalidSignatureException", "Signature expired: 2026"), K.CREDENTIALS),
    "unknown key": (aws.UNRECOGNIZED_CLIENT, K.CREDENTIALS),
    "unknown key, shape": (refuse(403, "UnrecognizedClientException"), K.CREDENTIALS),
    "expired": (aws.EXPIRED_TOKEN, K.CREDENTIALS),
    "expired, shape": (refuse(400, "ExpiredTokenException"), K.CREDENTIALS),
    "no signature": (refuse(403, "MissingAuthenticationTokenException"), K.CREDENTIALS),
    "another service": (refuse(404, "UnknownOperationException"), K.REGION),
    "404 of a proxy": (Refuse(404, "", "", ""), K.UNEXPECTED),
    "400 of a proxy": (Refuse(400, "", "", ""), K.UNEXPECTED),
    "302 of a proxy": (Refuse(302, "", "", ""), K.UNEXPECTED),
}


@pytest.mark.parametrize(("refusal", "kind"), FAULTS.values(), ids=FAULTS.keys())
def test_an_error_that_is_not_about_the_data_is_a_fault(
    fake: ScriptedCloudWatch, refusal: Refuse, kind: FaultKind
) -> None:
    fake.stand(refusal)
    error = raised_by(lambda: put_once(fake.url))
    assert isinstance(error, boto.ClientError)
    verdict = fault_of(error)
    assert verdict.kind is kind
    assert verdict.text.startswith(f"PutMetricData was answered {refusal.status}")
    assert verdict.status == refusal.status


@pytest.mark.parametrize(
    ("code", "query_code"),
    [
        ("InvalidParameterValueException", "InvalidParameterValue"),
        ("InvalidParameterValueException", ""),
        ("InvalidParameterCombinationException", ""),
        ("MissingRequiredParameterException", "MissingParameter"),
        ("ValidationException", ""),
    ],
)
def test_an_error_about_the_data_is_a_rejection(fake: ScriptedCloudWatch, code: str, query_code: str) -> None:
    fake.stand(refuse(400, code, "bad", query_code))
    assert fault_of(raised_by(lambda: put_once(fake.url))).kind is FaultKind.REJECTED


@pytest.mark.parametrize("code", ["SomethingNewException", "NotAuthorized", "MalformedHttpRequestException"])
def test_an_unknown_400_is_a_fault_and_refuses_no_datum(fake: ScriptedCloudWatch, code: str) -> None:
    fake.stand(refuse(400, code, "bad"))
    verdict = fault_of(raised_by(lambda: put_once(fake.url)))
    assert verdict.kind is FaultKind.UNEXPECTED


@pytest.mark.parametrize("refusal", [aws.TOO_LARGE, Refuse(413, "", "", "")], ids=["named", "without a body"])
def test_a_413_means_that_the_request_is_too_large(fake: ScriptedCloudWatch, refusal: Refuse) -> None:
    fake.stand(refusal)
    assert fault_of(raised_by(lambda: put_once(fake.url))).kind is FaultKind.TOO_LARGE


def test_a_datum_that_boto3_itself_refuses_is_rejected() -> None:
    error = raised_by(lambda: put_once("http://127.0.0.1:1", Value="many"))
    assert isinstance(error, boto.ParamValidationError)
    verdict = fault_of(error)
    assert verdict.kind is FaultKind.REJECTED
    assert "Invalid type for parameter MetricData[0].Value, value: many" in verdict.text


def test_an_error_in_xml_is_understood_too() -> None:
    body = "<ErrorResponse><Error><Code>ExpiredToken</Code><Message>It is old</Message></Error></ErrorResponse>"
    error = boto.ClientError(
        {"Error": {"Code": "403", "Message": body}, "ResponseMetadata": {"HTTPStatusCode": 403}},  # type: ignore[typeddict-item]
        "PutMetricData",
    )
    text = "PutMetricData was answered 403 ExpiredToken: It is old"
    assert fault_of(error) == Fault(K.CREDENTIALS, text, status=403)


# --- the network ---


@contextmanager
def full_backlog() -> Iterator[str]:
    """Yield an address that neither accepts nor refuses connections."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def is_unavailable(error: Exception, expected: type[Exception]) -> bool:
    verdict = fault_of(error)
    return type(error) is expected and verdict.kind is K.UNAVAILABLE


@pytest.mark.usefixtures("environ")
def test_no_answer_in_time_is_unavailability(fake: ScriptedCloudWatch) -> None:
    fake.stand(aws.HANG)
    assert is_unavailable(raised_by(lambda: put_once(fake.url, seconds=0.2)), boto.ReadTimeoutError)


@pytest.mark.usefixtures("environ")
def test_a_connection_that_is_reset_is_unavailability(fake: ScriptedCloudWatch) -> None:
    fake.stand(aws.RESET)
    assert is_unavailable(raised_by(lambda: put_once(fake.url, seconds=0.2)), boto.ConnectionClosedError)


@pytest.mark.usefixtures("environ")
def test_a_connection_that_is_not_accepted_is_unavailability() -> None:
    with full_backlog() as url:
        assert is_unavailable(raised_by(lambda: put_once(url, seconds=0.2)), boto.ConnectTimeoutError)


@pytest.mark.usefixtures("environ")
def test_a_server_without_tls_is_unavailability(fake: ScriptedCloudWatch) -> None:
    url = fake.url.replace("http:", "https:")
    assert is_unavailable(raised_by(lambda: put_once(url)), boto.SSLError)


@pytest.mark.usefixtures("environ")
def test_a_refused_connection_is_unavailability() -> None:
    error = raised_by(lambda: put_once("http://127.0.0.1:1"))
    assert is_unavailable(error, boto.EndpointConnectionError)


@pytest.mark.usefixtures("environ")
def test_a_proxy_that_is_down_is_unavailability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    error = raised_by(lambda: put_once("http://monitoring.invalid"))
    assert is_unavailable(error, boto.ProxyConnectionError)


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("password", ["hun/ter", "hun#ter", "hun?ter", "hun@ter/2"])
def test_a_password_of_a_proxy_is_never_shown_whatever_its_characters(
    password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:{password}@127.0.0.1:1")
    verdict = fault_of(raised_by(lambda: put_once("http://monitoring.invalid")))
    assert verdict.kind is K.UNAVAILABLE
    assert "hun" not in verdict.text
    assert "ter" not in verdict.text.partition(": ")[2]


# --- credentials, Region and endpoint: the configuration, boto3's error and its kind ---

WEB_IDENTITY = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": "{tmp}/token"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret"}
HERE = {"AWS_REGION": "eu-west-1"}
Row = tuple[Mapping[str, str], Mapping[str, str], type[Exception], FaultKind]
CONFIGURED: dict[str, Row] = {
    "none": (HERE, {}, boto.NoCredentialsError, K.CREDENTIALS),
    "half": (HERE | {"AWS_ACCESS_KEY_ID": "AKIDTEST"}, {}, boto.PartialCredentialsError, K.CREDENTIALS),
    "a line break in the key": (
        HERE | KEYS | {"AWS_ACCESS_KEY_ID": "AKIDTEST\n"},
        {},
        boto.HTTPClientError,
        K.CREDENTIALS,
    ),
    "no such profile": (HERE | {"AWS_PROFILE": "gone"}, {}, boto.ProfileNotFound, K.CREDENTIALS),
    "no token file": (HERE | WEB_IDENTITY, {}, FileNotFoundError, K.CREDENTIALS),
    "empty token file": (HERE | WEB_IDENTITY, {"token": ""}, boto.ParamValidationError, K.CREDENTIALS),
    "token but no role": (
        HERE | {"AWS_WEB_IDENTITY_TOKEN_FILE": "{tmp}/token"},
        {"token": "a-token"},
        boto.InvalidConfigError,
        K.CREDENTIALS,
    ),
    "sts down": (HERE | WEB_IDENTITY, {"token": "a-token"}, boto.EndpointConnectionError, K.UNAVAILABLE),
    "a role that is none": (
        HERE | WEB_IDENTITY | {"AWS_ROLE_ARN": "nonsense-instead-of-an-arn", "AWS_ENDPOINT_URL": "{fake}"},
        {"token": "a-token"},
        boto.ClientError,
        K.CREDENTIALS,
    ),
    "container's host": (
        HERE | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.1/"},
        {},
        ValueError,
        K.CREDENTIALS,
    ),
    "container's token file": (
        HERE
        | {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "{tmp}/token",
        },
        {},
        FileNotFoundError,
        K.CREDENTIALS,
    ),
    "container's endpoint down": (
        HERE | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/"},
        {},
        boto.CredentialRetrievalError,
        K.CREDENTIALS,
    ),
    "configuration file": (HERE, {"config": "nonsense ["}, boto.ConfigParseError, K.CREDENTIALS),
    "program": (
        HERE,
        {"config": "[default]\ncredential_process = {tmp}/gone\n"},
        FileNotFoundError,
        K.CREDENTIALS,
    ),
    "sso": (
        HERE,
        {"config": "[default]\nsso_start_url = x\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = r\n"},
        boto.SSOTokenLoadError,
        K.CREDENTIALS,
    ),
    "no region": (KEYS, {}, boto.NoRegionError, K.REGION),
    "impossible region": (KEYS | {"AWS_REGION": "eu west 1"}, {}, boto.InvalidRegionError, K.REGION),
    "endpoint without a scheme": (
        HERE | KEYS | {"AWS_ENDPOINT_URL_CLOUDWATCH": "localhost:5000"},
        {},
        ValueError,
        K.REGION,
    ),
    "nobody listens": (HERE | KEYS, {}, boto.EndpointConnectionError, K.UNAVAILABLE),
    "mode": (HERE | KEYS | {"AWS_DEFAULTS_MODE": "x"}, {}, boto.InvalidDefaultsMode, K.UNEXPECTED),
}


@pytest.mark.parametrize("row", CONFIGURED.values(), ids=CONFIGURED.keys())
@pytest.mark.usefixtures("bare_environ")
def test_a_wrong_configuration_is_a_fault_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: ScriptedCloudWatch, row: Row
) -> None:
    names, files, expected, kind = row
    for name, text in names.items():
        monkeypatch.setenv(name, text.format(tmp=tmp_path, fake=fake.url))
    for name, text in files.items():
        (tmp_path / name).write_text(text.format(tmp=tmp_path))
    error = raised_by(put)
    assert type(error) is expected
    verdict = fault_of(error)
    assert verdict.kind is kind
    assert verdict.status == 0


@pytest.mark.usefixtures("bare_environ")
def test_the_output_of_a_credential_process_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    (tmp_path / "config").write_text('[default]\ncredential_process = sh -c "echo hunter2 >&2; exit 1"\n')
    error = raised_by(put)
    assert "hunter2" in str(error)
    verdict = fault_of(error)
    assert verdict.kind is K.CREDENTIALS
    assert "hunter2" not in verdict.text


def test_an_unexpected_error_is_named_by_its_type() -> None:
    assert fault_of(KeyError("AccessKeyId")) == Fault(K.UNEXPECTED, "KeyError: 'AccessKeyId'")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "key *** is unknown"),
        ("secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY here", "secret *** here"),
        ("http://me:hunter2@proxy:3128 is down", "http://***@proxy:3128 is down"),
        ("http://me:hun@ter/2@proxy:3128 is down", "http://***@proxy:3128 is down"),
        ("does not match\nThe Canonical String was x-amz-security-token:IQoJ", "does not match"),
        (
            "User: arn:aws:sts::123456789012:assumed-role/karrotTaskRole/0123456789abcdef0123456789abcdef is not",
            "User: arn:aws:sts::123456789012:assumed-role/karrotTaskRole/0123456789abcdef0123456789abcdef is not",
        ),
        ("x " * 400, "x " * 149 + "x…"),
    ],
    ids=[
        "an access key",
        "a secret key",
        "a password of a proxy",
        "a password with @ and /",
        "a session token",
        "the ARN of a session",
        "a long text",
    ],
)
def test_error_texts_are_shown_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_the_data_of_these_tests_are_valid(environ: Mapping[str, str], fake: ScriptedCloudWatch) -> None:
    assert environ["AWS_ENDPOINT_URL"] == fake.url
    put()
    assert [datum.timestamp_ms for datum in fake.accepted] == [NOW_MS]
