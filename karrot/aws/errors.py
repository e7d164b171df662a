"""Classifies the exceptions of boto3 and botocore for every part of Karrot that calls AWS.

An error code has two spellings. With the header ``x-amzn-query-error``, it is ``Throttling``. Without this header, it
is ``ThrottlingException``. This module knows both.
"""

# ruff: noqa: PLC0415 - botocore is loaded with the first client

import re
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_LONGEST_TEXT = 300
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
    "InvalidToken",
    "RequestTimeTooSkewed",
    "AuthFailure",
}
_PERMISSION = {"AccessDenied", "UnauthorizedOperation", "OptInRequired"}
_REGION = {"UnknownOperation", "InvalidAction", "RegionDisabled"}

_FOR_CREDENTIALS = {"AssumeRole", "AssumeRoleWithWebIdentity", "GetRoleCredentials", "CreateToken"}
"""The calls that botocore makes in order to get credentials for the call that the program asked for."""

_IN_XML = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
"""An error in XML. Some front ends, for example moto's, answer a JSON request with XML. Then boto3 uses the whole body
as the message."""
_SECRETS = (
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "***"),  # the id of an access key
    (re.compile(r"(?<![-A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}"), "***"),  # a secret key or a session token; no ARN
    (re.compile(r"//\S*@"), "//***@"),  # a password in an address
)


class FaultKind(StrEnum):
    """Why a call of AWS failed. The values are stable: they are label values."""

    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    REGION = "region"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem on the side of AWS: the data must still be sent. ``answered``: the service itself said 5xx."""

    kind: FaultKind
    text: str
    answered: bool = False


def fault_of(error: Exception) -> Fault:
    """The fault that an exception shows. The exception came from opening a client, from credentials or from a call."""
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


def code_and_message(error: "ClientError") -> tuple[str, str]:
    """The error code and the message of an answer."""
    answer = error.response.get("Error", {})
    code, message = answer.get("Code", ""), answer.get("Message", "")
    found = _IN_XML.search(message)
    return (found[1], found[2]) if found else (code, message)


def without_secrets(text: str) -> str:
    """The first line of a message, shortened. Texts that may be a key, a token or a password are masked."""
    line = text.strip().partition("\n")[0]
    for pattern, mask in _SECRETS:
        line = pattern.sub(mask, line)
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 1] + "…"


def text_of_answer(error: "ClientError") -> str:
    """The operation, the answer's status, code and message, without secrets."""
    code, message = code_and_message(error)
    name = "" if code.isdecimal() else f" {code}"  # for an answer without a body, boto3 uses the status as the code
    return f"{error.operation_name} was answered {status_of(error)}{name}: {without_secrets(message)}".rstrip(": ")


def status_of(error: "ClientError") -> int:
    """The HTTP status of an answer. 0 if it is not known."""
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def _of_answer(error: "ClientError") -> Fault:
    status, is_own = status_of(error), error.operation_name not in _FOR_CREDENTIALS
    kind = kind_of_code(code_and_message(error)[0], status)
    kind = kind or (FaultKind.UNEXPECTED if is_own else FaultKind.CREDENTIALS)
    return Fault(kind, text_of_answer(error), answered=is_own and status >= HTTPStatus.INTERNAL_SERVER_ERROR)


def kind_of_code(code: str, status: int) -> FaultKind | None:
    """The kind of an answer. ``None`` if neither the code nor the status tells it."""
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


def _of_botocore(error: "BotoCoreError") -> Fault:
    from botocore import exceptions as boto

    if isinstance(error, boto.ParamValidationError):  # for example, the web identity token file is empty
        text = without_secrets(str(error).replace("\n", " "))
        return Fault(FaultKind.CREDENTIALS, f"{_SAYS[FaultKind.CREDENTIALS]}: {text}")
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


def _kind_of_message(text: str) -> FaultKind:
    """The kind of a builtin Python error that botocore raises. Only the message distinguishes such errors."""
    if text.startswith("Invalid endpoint"):  # an AWS_ENDPOINT_URL without a scheme
        return FaultKind.REGION
    if text.startswith(("Unsupported host", "Auth token value", "Credentials were refreshed")):
        return FaultKind.CREDENTIALS
    return FaultKind.UNEXPECTED
