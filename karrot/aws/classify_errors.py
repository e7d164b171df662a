"""Classifies the exceptions of boto3 and botocore for every part of Karrot that calls AWS.

An error code is ``Throttling`` in an answer with the header ``x-amzn-query-error``, and ``ThrottlingException`` without
this header. Botocore's classes are known by their names, so nothing here loads botocore.
"""

import re
from enum import StrEnum
from http import HTTPStatus
from typing import Any, NamedTuple


class FaultKind(StrEnum):
    """Names why a call to AWS failed. The values are stable: they are metric label values.

    ``rejected`` and ``too_large`` mean that the call's data is wrong. After every other kind, the data must still be
    sent.
    """

    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    REGION = "region"
    UNEXPECTED = "unexpected"
    REJECTED = "rejected"
    TOO_LARGE = "too_large"


ABOUT_THE_DATA = (FaultKind.REJECTED, FaultKind.TOO_LARGE)
_LONGEST_TEXT = 300
_NAMES = {  # error codes, and names of botocore's classes, which include their subclasses
    FaultKind.THROTTLED: "Throttling Throttled RequestThrottled RequestLimitExceeded TooManyRequests SlowDown",
    FaultKind.UNAVAILABLE: "InternalServiceFault InternalServiceError InternalFailure ServiceUnavailable RequestTimeout"
    " IDPCommunicationError HTTPClientError ConnectionError TimeoutError ResponseParserError",
    FaultKind.CREDENTIALS: "SignatureDoesNotMatch InvalidSignature IncompleteSignature InvalidClientTokenId"
    " UnrecognizedClient ExpiredToken RequestExpired MissingAuthenticationToken InvalidAccessKeyId InvalidToken"
    " RequestTimeTooSkewed AuthFailure NoCredentialsError PartialCredentialsError CredentialRetrievalError"
    " MetadataRetrievalError ProfileNotFound ConfigParseError ConfigNotFound InvalidConfigError TokenRetrievalError"
    " SSOError ParamValidationError",  # ParamValidationError: for example, an empty web identity token file
    FaultKind.PERMISSION: "AccessDenied UnauthorizedOperation OptInRequired",
    FaultKind.REGION: "UnknownOperation InvalidAction RegionDisabled BaseEndpointResolverError EndpointProviderError"
    " InvalidRegionError UnknownRegionError",
    FaultKind.TOO_LARGE: "RequestEntityTooLarge",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_STATUSES = {**dict.fromkeys((401, 403), FaultKind.PERMISSION), 413: FaultKind.TOO_LARGE, 429: FaultKind.THROTTLED}
_REJECTED = ("InvalidParameter", "MissingParameter", "MissingRequired", "InvalidFormat", "Validation", "Serialization")
_NAMED_BY_BOTO = re.compile(r"MetricData\[\d+\]")

_SAYS = {
    FaultKind.UNAVAILABLE: "AWS could not be reached, or its answer did not arrive",
    FaultKind.REGION: "The AWS Region or the endpoint is missing or wrong",
    FaultKind.CREDENTIALS: "AWS credentials are missing or cannot be fetched",
}
_WRONG_CREDENTIALS = ("Unsupported host", "Auth token value", "Credentials were refreshed")
"""For wrong credentials, botocore raises builtin errors whose messages start with these strings."""

_FOR_CREDENTIALS = {"AssumeRole", "AssumeRoleWithWebIdentity", "GetRoleCredentials", "CreateToken"}
"""The calls that botocore makes to get credentials, before it makes the program's own call."""

_IN_XML = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
"""Matches an XML error, with which some front ends answer a JSON request. boto3 makes the whole body the message."""
_SECRETS = (
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "***"),  # the id of an access key
    (re.compile(r"(?<![-A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}"), "***"),  # a secret key or a session token, but no ARN
    (re.compile(r"//\S*@"), "//***@"),  # a password in an address
)


class Fault(NamedTuple):
    """A failed call to AWS. ``status`` is the HTTP status of the answer to the program's own call, or 0 without it."""

    kind: FaultKind
    text: str
    status: int = 0


def fault_of(error: Exception) -> Fault:
    """Convert an exception to a fault. It came from opening a client, from credentials or from a call."""
    names, whole = [each.__name__ for each in type(error).__mro__], str(error)
    if "ClientError" in names:
        return _of_answer(error)
    text = without_secrets(whole.replace("\n", " ") if "ParamValidationError" in names else whole)
    if _NAMED_BY_BOTO.search(whole):
        return Fault(FaultKind.REJECTED, text)
    if "CredentialRetrievalError" in names and vars(error).get("kwargs", {}).get("provider") == "custom-process":
        text = "the credential_process of the AWS configuration failed"  # do not show its output: it may be a secret
    if "HTTPClientError" in names and "Invalid header value" in whole:
        return Fault(FaultKind.CREDENTIALS, "An AWS key or token has a line break or another wrong character")
    if "HTTPClientError" in names and "Failed to parse" in whole:
        text = "the address of the proxy is not a URL"  # do not show what urllib3 read: it may be half of the password
    if kind := next((_KINDS[name] for name in names if _KINDS.get(name) in _SAYS), None):
        return Fault(kind, f"{_SAYS[kind]}: {text}")
    if isinstance(error, OSError) and error.filename is not None:  # a token file, or a program that prints credentials
        return Fault(FaultKind.CREDENTIALS, f"A file for the AWS credentials cannot be used: {text}")
    kind = FaultKind.CREDENTIALS if whole.startswith(_WRONG_CREDENTIALS) else FaultKind.UNEXPECTED
    kind = FaultKind.REGION if whole.startswith("Invalid endpoint") else kind  # an AWS_ENDPOINT_URL without a scheme
    return Fault(kind, f"{type(error).__name__}: {text}")


def without_secrets(text: str) -> str:
    """Shorten a message to its first line, and mask each string that may be a key, a token or a password."""
    line = text.strip().partition("\n")[0]
    for pattern, mask in _SECRETS:
        line = pattern.sub(mask, line)
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 1] + "…"


def _of_answer(error: Any) -> Fault:
    """Convert a ``ClientError``. The fault's text has the operation, and the answer's status, code and message."""
    answer, operation = error.response.get("Error", {}), error.operation_name
    code, message = answer.get("Code", ""), answer.get("Message", "")
    if found := _IN_XML.search(message):
        code, message = found[1], found[2]
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    name = "" if code.isdecimal() else f" {code}"  # for an answer without a body, boto3 uses the status as the code
    text = f"{operation} was answered {status}{name}: {without_secrets(message)}".rstrip(": ")
    other = FaultKind.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else FaultKind.UNEXPECTED
    kind = _KINDS.get(code.removesuffix("Exception")) or _STATUSES.get(status, other)
    # Refuse data only for errors that are known to be about the data. Any other 400 may be about the caller.
    if kind is FaultKind.UNEXPECTED and status == HTTPStatus.BAD_REQUEST and code.startswith(_REJECTED):
        kind = FaultKind.REJECTED
    if operation in _FOR_CREDENTIALS:
        return Fault(FaultKind.CREDENTIALS if kind in (*ABOUT_THE_DATA, FaultKind.UNEXPECTED) else kind, text)
    return Fault(kind, text, status)
