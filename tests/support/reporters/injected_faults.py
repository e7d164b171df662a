"""Defines the faults that the tests' fake CloudWatch injects into its answers, and queues them."""

import threading
from collections import deque
from dataclasses import dataclass

from support.reporters.cloudwatch_service.request_handler import AwsAnswer, Refuse, error


@dataclass(frozen=True, slots=True)
class RefuseByShape(Refuse):
    """An error whose answer lacks the header with the query protocol's error name."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Read the request and send no answer until the caller gives up."""

    after_keeping: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Read the request and reset the connection."""

    after_keeping: bool = False


Fault = Refuse | Hang | Reset

HANG, HANG_AFTER_KEEPING = Hang(), Hang(after_keeping=True)
RESET, RESET_AFTER_KEEPING = Reset(), Reset(after_keeping=True)

INTERNAL_ERROR = Refuse(500, "InternalServiceError", "InternalServiceFault", "We encountered an internal error.")
UNAVAILABLE = Refuse(503, "ServiceUnavailable", "", "")
TOO_MANY_REQUESTS = Refuse(429, "TooManyRequestsException", "", "")
THROTTLING = Refuse(400, "Throttling", "ThrottlingException", "Rate exceeded")
REQUEST_LIMIT_EXCEEDED = Refuse(400, "RequestLimitExceeded", "RequestLimitExceeded", "Request limit exceeded.")
TOO_LARGE = Refuse(413, "RequestEntityTooLarge", "RequestEntityTooLarge", "Request size exceeded the limit")
ACCESS_DENIED = Refuse(
    403,
    "AccessDenied",
    "AccessDeniedException",
    "User: arn:aws:sts::123456789012:assumed-role/karrot/session is not authorized to perform: "
    "cloudwatch:PutMetricData because no identity-based policy allows the cloudwatch:PutMetricData action",
)
EXPIRED_TOKEN = Refuse(
    403, "ExpiredToken", "ExpiredTokenException", "The security token included in the request is expired"
)
UNRECOGNIZED_CLIENT = Refuse(
    403, "InvalidClientTokenId", "UnrecognizedClientException", "The security token included in the request is invalid."
)
SIGNATURE_DOES_NOT_MATCH = Refuse(
    403,
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
)


def without_query_error(refuse: Refuse) -> Refuse:
    """Return the same error, named only by its shape."""
    return RefuseByShape(refuse.status, refuse.code, refuse.shape, refuse.text)


def answer_of(refuse: Refuse) -> AwsAnswer:
    """Return the answer that reports an error; it has no body if the error has no shape."""
    if not refuse.shape:
        return AwsAnswer(refuse.status)
    answer = error(refuse)
    if isinstance(refuse, RefuseByShape):
        headers = {name: value for name, value in answer.headers.items() if name != "x-amzn-query-error"}
        return AwsAnswer(answer.status, answer.body, headers)
    return answer


THROTTLING_WITHOUT_QUERY_ERROR = without_query_error(THROTTLING)


class Script:
    """A queue of faults for the next requests, one each, and then one fault until it is cleared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Fault | None] = deque()
        self._standing: Fault | None = None

    def add(self, *faults: Fault | None) -> None:
        """Add one fault for each of the next requests; None lets a request pass."""
        with self._lock:
            self._queue.extend(faults)

    def stand(self, fault: Fault) -> None:
        """Set the fault for every request when the queue is empty."""
        with self._lock:
            self._standing = fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._queue.clear()
            self._standing = None

    def take(self) -> Fault | None:
        """Return the fault for this request, or None."""
        with self._lock:
            return self._queue.popleft() if self._queue else self._standing
