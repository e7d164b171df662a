"""The real client sees each scripted fault of the fake CloudWatch."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from support.reporters import injected_faults as aws
from support.reporters.cloudwatch_service.request_handler import Refuse
from support.reporters.fake_cloudwatch_client import boto3_client, client_error, datum_dict, put_json, put_metric_data
from support.reporters.injected_faults import Fault
from support.reporters.scripted_cloudwatch import NO_ANSWER, ScriptedCloudWatch
from support.waiting import wait_for

ERRORS: dict[str, tuple[Fault, int, str, str]] = {
    "internal error": (aws.INTERNAL_ERROR, 500, "InternalServiceError", "InternalServiceError"),
    "unavailable, no body": (aws.UNAVAILABLE, 503, "503", "ServiceUnavailable"),
    "too many requests, no body": (aws.TOO_MANY_REQUESTS, 429, "429", "TooManyRequestsException"),
    "throttling": (aws.THROTTLING, 400, "Throttling", "Throttling"),
    "throttling, shape alone": (aws.THROTTLING_WITHOUT_QUERY_ERROR, 400, "ThrottlingException", "Throttling"),
    "request limit": (aws.REQUEST_LIMIT_EXCEEDED, 400, "RequestLimitExceeded", "RequestLimitExceeded"),
    "too large": (aws.TOO_LARGE, 413, "RequestEntityTooLarge", "RequestEntityTooLarge"),
    "access denied": (aws.ACCESS_DENIED, 403, "AccessDenied", "AccessDenied"),
    "expired token": (aws.EXPIRED_TOKEN, 403, "ExpiredToken", "ExpiredToken"),
    "unrecognized client": (aws.UNRECOGNIZED_CLIENT, 403, "InvalidClientTokenId", "InvalidClientTokenId"),
    "wrong signature": (aws.SIGNATURE_DOES_NOT_MATCH, 403, "SignatureDoesNotMatch", "SignatureDoesNotMatch"),
}


@pytest.mark.parametrize(("fault", "status", "code", "recorded"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_answered_once_and_nothing_is_kept(
    fake: ScriptedCloudWatch, fault: Fault, status: int, code: str, recorded: str
) -> None:
    fake.script(fault)
    with pytest.raises(ClientError) as caught:
        put_metric_data(fake, datum_dict())
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert caught.value.response["Error"]["Code"] == code
    assert fake.accepted == []
    put_metric_data(fake, datum_dict())
    calls = [(call.status, call.code, call.data, call.kept) for call in fake.calls]
    assert calls == [(status, recorded, 1, False), (200, "", 1, True)]


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        (aws.INTERNAL_ERROR, "InternalServiceFault"),
        (aws.THROTTLING, "ThrottlingException"),
        (aws.ACCESS_DENIED, "AccessDeniedException"),
        (aws.EXPIRED_TOKEN, "ExpiredTokenException"),
        (aws.UNRECOGNIZED_CLIENT, "UnrecognizedClientException"),
        (aws.SIGNATURE_DOES_NOT_MATCH, "InvalidSignatureException"),
    ],
)
def test_without_the_header_the_shape_is_the_code(fake: ScriptedCloudWatch, fault: Refuse, shape: str) -> None:
    fake.script(aws.without_query_error(fault))
    assert client_error(fake, datum_dict()) == (shape, fault.text)


def test_503_has_no_body(fake: ScriptedCloudWatch) -> None:
    fake.script(aws.UNAVAILABLE)
    answer = put_json(fake, {})
    assert (answer.status, answer.body, answer.code) == (503, b"", "")


def test_the_script_runs_in_order_and_lets_the_given_requests_pass(fake: ScriptedCloudWatch) -> None:
    fake.script(aws.THROTTLING, None, aws.INTERNAL_ERROR)
    for _ in range(4):
        with suppress(ClientError):
            put_metric_data(fake, datum_dict())
    assert [call.status for call in fake.calls] == [400, 200, 500, 200]


def test_a_fault_stays_until_it_is_cleared(fake: ScriptedCloudWatch) -> None:
    fake.stand(aws.UNAVAILABLE)
    fake.script(aws.THROTTLING)
    for _ in range(3):
        with pytest.raises(ClientError):
            put_metric_data(fake, datum_dict())
    fake.clear()
    put_metric_data(fake, datum_dict())
    assert [call.status for call in fake.calls] == [400, 503, 503, 200]


def test_the_real_client_retries_retryable_faults(fake: ScriptedCloudWatch) -> None:
    fake.script(aws.INTERNAL_ERROR)
    with boto3_client(fake, attempts=2) as cloudwatch:
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "Lag", "Value": 1.0}])
    assert [(call.status, call.kept) for call in fake.calls] == [(500, False), (200, True)]


SILENT: dict[str, tuple[Fault, type[Exception], str, bool]] = {
    "hang": (aws.HANG, ReadTimeoutError, "Hang", False),
    "hang after keeping": (aws.HANG_AFTER_KEEPING, ReadTimeoutError, "Hang", True),
    "reset": (aws.RESET, ConnectionClosedError, "Reset", False),
    "reset after keeping": (aws.RESET_AFTER_KEEPING, ConnectionClosedError, "Reset", True),
}


@pytest.mark.parametrize(("fault", "error", "code", "kept"), SILENT.values(), ids=SILENT.keys())
def test_a_request_without_an_answer_was_kept_or_not(
    fake: ScriptedCloudWatch, fault: Fault, error: type[Exception], code: str, *, kept: bool
) -> None:
    fake.script(fault)
    patience: dict[str, Any] = {"read_timeout": 0.2} if isinstance(fault, aws.Hang) else {}
    with boto3_client(fake, **patience) as cloudwatch, pytest.raises(error):
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "Lag", "Value": 1.0}])
    wait_for(lambda: len(fake.calls) > 0)  # the client may give up before the fake has read the request
    assert [(call.status, call.code, call.kept) for call in fake.calls] == [(NO_ANSWER, code, kept)]
    assert len(fake.accepted) == int(kept)


def test_an_invalid_request_is_not_kept_by_a_fault_that_keeps(fake: ScriptedCloudWatch) -> None:
    fake.script(aws.RESET_AFTER_KEEPING)
    with pytest.raises(ConnectionClosedError):
        put_metric_data(fake, datum_dict(Unit="none"))
    assert (fake.accepted, [call.kept for call in fake.calls]) == ([], [False])


def test_a_slow_answer_arrives_byte_for_byte(fake: ScriptedCloudWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(fake.closing, "wait", pauses.append)
    fake.script(aws.SlowDrip(3600))
    assert put_metric_data(fake, datum_dict())["HTTPStatusCode"] == 200
    assert pauses == [3600] * len("{}")
    assert len(fake.accepted) == 1


def test_a_refusal_can_arrive_slowly_byte_by_byte_too(fake: ScriptedCloudWatch) -> None:
    fake.script(aws.SlowDrip(0.0))
    assert client_error(fake, datum_dict(Unit="none"))[0] == "InvalidParameterValue"


ENDLESS: list[Callable[[], Fault]] = [aws.Hang, lambda: aws.SlowDrip(3600)]


@pytest.mark.parametrize("fault", ENDLESS, ids=["hang", "drip"])
def test_closing_ends_open_requests(fault: Callable[[], Fault]) -> None:
    errors: list[Any] = []

    def call() -> None:
        try:
            put_metric_data(fake, datum_dict())
        except Exception as error:  # noqa: BLE001 (the test checks every error)
            errors.append(error)

    with ScriptedCloudWatch(clock_ms=lambda: 0) as fake:
        fake.stand(fault())
        caller = threading.Thread(target=call)
        caller.start()
        wait_for(lambda: len(fake.calls) > 0)
    caller.join()
    assert [isinstance(error, Exception) for error in errors] == [True]
