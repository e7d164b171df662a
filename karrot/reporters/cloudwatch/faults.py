"""Classifies the exceptions of boto3 by what the sender must do next.

An error code has two spellings. With the header ``x-amzn-query-error``, it is ``Throttling``. Without this header, it
is ``ThrottlingException``. This module knows both. An error while fetching credentials says nothing about the data.
"""

# ruff: noqa: PLC0415 - botocore is loaded with the first client, not with the reporter

import re
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_LONGEST_TEXT = 300
_PUT = "PutMetricData"
_THROTTLED = {"Throttling", "Throttled", "RequestThrottled", "RequestLimitExceeded", "TooManyRequests", "SlowDown"}
_UNAVAILABLE = {"InternalServiceFault", "InternalServiceError", "InternalFailure", "ServiceUnavailable"} | {
    "RequestTimeout",
    "IDPCommunicationError",
}
_CREDENTIALS = {"SignatureDoesNotMatch", "InvalidSignature", "IncompleteSignature", "InvalidClientTokenId"} | {
    "UnrecognizedClient",
    "ExpiredToken",
    "RequestExpired",
    "MissingAuthenticationToken",
    "InvalidAccessKeyId",
    "AuthFailure",
}
_PERMISSION = {"AccessDenied", "UnauthorizedOperation", "OptInRequired"}
_ABOUT_THE_DATA = (
    "InvalidParameter",
    "MissingParameter",
    "MissingRequiredParameter",
    "InvalidFormat",
    "Validation",
    "SerializationException",
)
_REGION = {"UnknownOperation", "InvalidAction", "RegionDisabled"}

_NAMED = re.compile(r"metricData\.(?:member\.)?(\d+)", re.IGNORECASE)
"""A datum as CloudWatch names it, counted from 1: ``MetricData.member.15.Value`` or ``metricData.15.member.value``."""
_NAMED_BY_BOTO = re.compile(r"MetricData\[(\d+)\]")
_IN_XML = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
"""An error in XML. Some front ends, for example moto's, answer a JSON request with XML. Then boto3 uses the whole body
as the message."""
_SECRETS = (
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "***"),  # the id of an access key
    (re.compile(r"(?<![-A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}"), "***"),  # a secret key or a session token; no ARN
    (re.compile(r"//\S*@"), "//***@"),  # a password in an address
)


class FaultKind(StrEnum):
    """Why sending stopped. The values are stable: they are label values."""

    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    REGION = "region"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem with CloudWatch, or on the way to CloudWatch. The data are not the cause, and must still be sent.

    ``text`` is a message for people, without secrets. ``answered`` says that CloudWatch itself answered with 5xx.
    """

    kind: FaultKind
    text: str
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """CloudWatch rejected the request because of some of its data, so it accepted no data of the request.

    ``members`` are the positions, counted from 0, that the answer names. It is empty if the answer names none.
    """

    text: str
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The request has too many bytes."""

    text: str


Verdict = Fault | Rejected | TooLarge


def classify(error: Exception) -> Verdict:
    """The verdict on an exception that came from opening the client or from a call."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        return _of_answer(error)
    if isinstance(error, BotoCoreError):
        return _of_botocore(error)
    text = without_secrets(str(error))
    if isinstance(error, ConnectionError | TimeoutError | ResponseParserError):
        return Fault(FaultKind.UNAVAILABLE, f"The connection to AWS failed: {text}")
    if isinstance(error, OSError) and error.filename is not None:  # a token file, or a program that prints credentials
        return Fault(FaultKind.CREDENTIALS, f"A file for the AWS credentials cannot be used: {text}")
    return Fault(_kind_of_message(text), f"{type(error).__name__}: {text}")


def status_of(error: Exception) -> int | None:
    """The HTTP status of CloudWatch's answer. ``None`` if the exception is not an answer of CloudWatch."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError) or error.operation_name != _PUT:
        return None
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")


def without_secrets(text: str) -> str:
    """The first line of a message, shortened. Texts that may be a key, a token or a password are masked."""
    line = text.strip().partition("\n")[0]
    for pattern, mask in _SECRETS:
        line = pattern.sub(mask, line)
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 1] + "…"


def _of_answer(error: "ClientError") -> Verdict:
    answer = error.response.get("Error", {})
    code, message = answer.get("Code", ""), answer.get("Message", "")
    if found := _IN_XML.search(message):
        code, message = found.groups()
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    name = "" if code.isdecimal() else f" {code}"  # for an answer without a body, boto3 uses the status as the code
    text = f"{error.operation_name} was answered {status}{name}: {without_secrets(message)}".rstrip(": ")
    if error.operation_name == _PUT:
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or code.startswith("RequestEntityTooLarge"):
            return TooLarge(text)
        kind = _kind_of_code(code, status)
        # Refuse data only for errors that are known to be about the data. Any other 400 may be about the caller.
        if kind is None and status == HTTPStatus.BAD_REQUEST and code.startswith(_ABOUT_THE_DATA):
            return Rejected(text, tuple(sorted({int(number) - 1 for number in _NAMED.findall(message)})))
        return Fault(kind or FaultKind.UNEXPECTED, text, answered=status >= HTTPStatus.INTERNAL_SERVER_ERROR)
    return Fault(_kind_of_code(code, status) or FaultKind.CREDENTIALS, text)


def _kind_of_code(code: str, status: int) -> FaultKind | None:
    name = code.removesuffix("Exception")
    if name in _THROTTLED or status == HTTPStatus.TOO_MANY_REQUESTS:
        return FaultKind.THROTTLED
    if name in _UNAVAILABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return FaultKind.UNAVAILABLE
    if name in _CREDENTIALS:
        return FaultKind.CREDENTIALS
    if name in _REGION:
        return FaultKind.REGION
    if name in _PERMISSION or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return FaultKind.PERMISSION
    return None


def _of_botocore(error: "BotoCoreError") -> Verdict:
    from botocore import exceptions as boto

    if isinstance(error, boto.ParamValidationError):
        return _of_parameters(str(error))
    text = without_secrets(str(error))
    if isinstance(error, boto.CredentialRetrievalError) and error.kwargs.get("provider") == "custom-process":
        text = "the credential_process of the AWS configuration failed"  # do not show its output: it may be a secret
    if isinstance(error, boto.HTTPClientError) and "Invalid header value" in str(error):
        return Fault(FaultKind.CREDENTIALS, "An AWS key or token has a line break or another wrong character")
    if isinstance(error, boto.HTTPClientError) and "Failed to parse" in str(error):
        text = "the address of the proxy is not a URL"  # do not show what urllib3 read: it may be half of the password
    for kinds, kind in (
        ((boto.HTTPClientError, boto.ConnectionError), FaultKind.UNAVAILABLE),
        ((boto.BaseEndpointResolverError, boto.EndpointProviderError), FaultKind.REGION),
        ((boto.InvalidRegionError, boto.UnknownRegionError), FaultKind.REGION),
        (_credentials_errors(), FaultKind.CREDENTIALS),
    ):
        if isinstance(error, kinds):
            return Fault(kind, f"{_SAYS[kind]}: {text}")
    return Fault(FaultKind.UNEXPECTED, f"{type(error).__name__}: {text}")


_SAYS = {
    FaultKind.UNAVAILABLE: "AWS could not be reached, or its answer did not arrive",
    FaultKind.REGION: "The AWS Region or the endpoint is missing or wrong",
    FaultKind.CREDENTIALS: "AWS credentials are missing or cannot be fetched",
}


def _credentials_errors() -> tuple[type["BotoCoreError"], ...]:
    from botocore import exceptions as boto

    return (
        boto.NoCredentialsError,
        boto.PartialCredentialsError,
        boto.CredentialRetrievalError,
        boto.MetadataRetrievalError,
        boto.ProfileNotFound,
        boto.ConfigParseError,
        boto.ConfigNotFound,
        boto.InvalidConfigError,
        boto.TokenRetrievalError,
        boto.SSOError,
    )


def _of_parameters(report: str) -> Verdict:
    """The verdict on parameters that boto3 refuses: those of a datum, or those of a call for credentials.

    For example, boto3 refuses a call for credentials if the web identity token file is empty.
    """
    text = without_secrets(report.replace("\n", " "))
    if members := tuple(sorted({int(number) for number in _NAMED_BY_BOTO.findall(report)})):
        return Rejected(text, members)
    return Fault(FaultKind.CREDENTIALS, f"{_SAYS[FaultKind.CREDENTIALS]}: {text}")


def _kind_of_message(text: str) -> FaultKind:
    """The kind of a builtin Python error that botocore raises. Only the message distinguishes such errors."""
    if text.startswith("Invalid endpoint"):  # an AWS_ENDPOINT_URL without a scheme
        return FaultKind.REGION
    if text.startswith(("Unsupported host", "Auth token value", "Credentials were refreshed")):
        return FaultKind.CREDENTIALS
    return FaultKind.UNEXPECTED
