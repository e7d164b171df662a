"""Sends data to CloudWatch in as few calls as CloudWatch's limits allow. Finds the bad data of a rejected call."""

# ruff: noqa: PLC0415 - botocore is loaded with the first client, not with the reporter

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from karrot.aws.errors import (
    Fault,
    FaultKind,
    code_and_message,
    fault_of,
    kind_of_code,
    text_of_answer,
    without_secrets,
)
from karrot.aws.errors import status_of as status_of_answer
from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, MetricKey, batches

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_PUT = "PutMetricData"
_ABOUT_THE_DATA = (
    "InvalidParameter",
    "MissingParameter",
    "MissingRequiredParameter",
    "InvalidFormat",
    "Validation",
    "SerializationException",
)
_NAMED = re.compile(r"metricData\.(?:member\.)?(\d+)", re.IGNORECASE)
"""A datum as CloudWatch names it, counted from 1: ``MetricData.member.15.Value`` or ``metricData.15.member.value``."""
_NAMED_BY_BOTO = re.compile(r"MetricData\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Rejected:
    """CloudWatch rejected the request because of its ``members`` (from 0; none if not named), and took none."""

    text: str
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The request has too many bytes."""

    text: str


Verdict = Fault | Rejected | TooLarge


def classify(error: Exception) -> Verdict:
    from botocore.exceptions import ClientError, ParamValidationError

    refused: Rejected | TooLarge | None = None
    if isinstance(error, ClientError) and error.operation_name == _PUT:
        refused = _refused(error)
    elif isinstance(error, ParamValidationError) and (named := _NAMED_BY_BOTO.findall(str(error))):
        refused = Rejected(without_secrets(str(error).replace("\n", " ")), _members(named, first=0))
    return refused or fault_of(error)


def status_of(error: Exception) -> int | None:
    """The HTTP status of CloudWatch's answer. ``None`` if the exception is not an answer of CloudWatch."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError) and error.operation_name == _PUT:
        return status_of_answer(error) or None
    return None


def _refused(error: "ClientError") -> Rejected | TooLarge | None:
    """The verdict on data that CloudWatch refuses. ``None`` if the data are not the cause."""
    (code, message), status = code_and_message(error), status_of_answer(error)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or code.startswith("RequestEntityTooLarge"):
        return TooLarge(text_of_answer(error))
    # Refuse data only for errors that are known to be about the data. Any other 400 may be about the caller.
    is_about_data = status == HTTPStatus.BAD_REQUEST and code.startswith(_ABOUT_THE_DATA)
    if is_about_data and kind_of_code(code, status) is None:
        return Rejected(text_of_answer(error), _members(_NAMED.findall(message), first=1))
    return None


def _members(numbers: Iterable[str], *, first: int) -> tuple[int, ...]:
    return tuple(sorted({int(number) - first for number in numbers}))


_CALLS_PER_S = 10.0
_BURST = 10.0
SEARCH_CALLS = 160
"""The most calls that one `Sender.send` may use to find rejected data.

This number is enough for ten bad data among 1,000, even if no answer names them."""
_MOST_SUSPECTS = 1000
_FAILURES_BEFORE_A_PROBE = 3
_PASSING = (FaultKind.UNAVAILABLE, FaultKind.THROTTLED)
"""Faults that a new client would not solve."""


@dataclass(frozen=True, slots=True)
class BatchRefusal:
    """A datum that CloudWatch does not accept. ``reason`` is stable: ``rejected`` or ``too_large``."""

    datum: Datum
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The result of a send. Because of ``fault``, ``kept`` must be sent again. Some of it may have arrived."""

    delivered: tuple[Datum, ...]
    refused: tuple[BatchRefusal, ...]
    kept: tuple[Datum, ...]
    calls: int
    fault: Fault | None


@dataclass(slots=True)
class Flush:
    """The progress of one send. It delivers, refuses or keeps each datum of its batches.

    ``call`` makes one request, and returns ``None`` if all data arrived. CloudWatch accepts all data of a call or none.
    A datum is refused only if CloudWatch rejected it in a call with this datum alone, or named every datum of the call.
    So an answer with wrong positions costs calls, but never a good datum. Without names, halving finds one bad datum
    among 1,000 with at most 20 calls: two for each halving. With names, two calls are enough.
    """

    call: Callable[[list[Datum]], Verdict | None]
    search_calls: int = SEARCH_CALLS
    delivered: list[Datum] = field(default_factory=list)
    refused: list[BatchRefusal] = field(default_factory=list)
    kept: list[Datum] = field(default_factory=list)
    fault: Fault | None = None
    stopped: bool = False
    _searched: int = 0
    _rejection: str = ""
    _names_are_true: bool = True

    def settle(self, batch: list[Datum]) -> None:
        """Send a batch. If CloudWatch rejects the batch, send parts of it. After a fault, keep all data."""
        self._names_are_true = True
        if self.stopped:
            self.kept += batch
        else:
            self._send(batch)

    def _send(self, data: list[Datum]) -> bool:
        """Send some data. If they are rejected, send parts of them. Return whether all data arrived with one call."""
        verdict = self.call(data)
        if verdict is None:
            self.delivered += data
        elif isinstance(verdict, Fault):
            self.fault, self.stopped = verdict, True
            self.kept += data
        else:
            self._rejection = verdict.text
            self._divide(data, verdict)
        return verdict is None

    def _divide(self, data: list[Datum], verdict: Rejected | TooLarge) -> None:
        """Refuse rejected data, or send them in two parts: named and unnamed data, or two halves."""
        named = self._named(data, verdict)
        if len(data) == 1 or len(named) == len(data):
            reason = "too_large" if isinstance(verdict, TooLarge) else "rejected"
            self.refused += [BatchRefusal(datum, reason, verdict.text) for datum in data]
        elif named:
            if self._send_part([data[position] for position in sorted(named)]):
                self._names_are_true = False
            self._send_part([datum for position, datum in enumerate(data) if position not in named])
        else:
            self._halve(data, one_is_bad=isinstance(verdict, Rejected))

    def _halve(self, data: list[Datum], *, one_is_bad: bool) -> None:
        """Send both halves. If one half is bad and the first arrived, the second is bad: halve it without a call."""
        middle = (len(data) + 1) // 2
        first_arrived = self._send_part(data[:middle])
        second = data[middle:]
        if one_is_bad and first_arrived and len(second) > 1:
            self._halve(second, one_is_bad=True)
        else:
            self._send_part(second)

    def _send_part(self, data: list[Datum]) -> bool:
        """Do the same as `_send` while search calls are left. Then keep the data. Later batches are still sent."""
        if self.stopped or self._searched >= self.search_calls:
            self.kept += data
            if not self.stopped:
                text = f"{self.search_calls} calls did not find all rejected data; last rejection: {self._rejection}"
                self.fault = Fault(FaultKind.UNEXPECTED, text)
            return False
        self._searched += 1
        return self._send(data)

    def _named(self, data: list[Datum], verdict: Rejected | TooLarge) -> set[int]:
        if isinstance(verdict, TooLarge) or not self._names_are_true:
            return set()
        return {position for position in verdict.members if 0 <= position < len(data)}


class _Pace:
    """Limits the rate of calls: a burst of 10, then 10 per second. It does not count boto3's own second attempts."""

    def __init__(self, pause: Callable[[float], object], monotonic: Callable[[], float]) -> None:
        self._pause = pause
        self._monotonic = monotonic
        self._calls = _BURST
        self._filled_at = monotonic()

    def wait(self) -> None:
        self._fill()
        if self._calls < 1:
            self._pause((1 - self._calls) / _CALLS_PER_S)
            self._fill()
        self._calls -= 1

    def _fill(self) -> None:
        now = self._monotonic()
        self._calls = min(_BURST, self._calls + (now - self._filled_at) * _CALLS_PER_S)
        self._filled_at = now


class Sender:
    """Sends data with its own boto3 client. Each process has one client, which is opened when it is first needed.

    ``count(status=…)`` counts every call by the HTTP status of its answer, or with ``error`` if there was no answer.
    ``pause(seconds)`` waits, or waits a shorter time when the service stops. ``monotonic`` returns seconds.
    ``may_call()`` is asked before each call: a process that was frozen must not send what its successor has sent. Only
    one thread may use a sender at a time, in the process that sends, because a client does not survive a fork.
    """

    def __init__(
        self,
        open_client: Callable[[], PutMetricData],
        namespace: str,
        *,
        count: Callable[..., None],
        pause: Callable[[float], object],
        monotonic: Callable[[], float],
        may_call: Callable[[], bool] = lambda: True,
    ) -> None:
        self._open_client = open_client
        self._namespace = namespace
        self._count = count
        self._may_call = may_call
        self._pace = _Pace(pause, monotonic)
        self._client: PutMetricData | None = None
        self._opened_now = False
        self._calls = 0
        self._suspects: dict[MetricKey, None] = {}
        self._failed_sends = 0
        self._blames_data = False

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send the data, which have at most one datum per metric.

        Problems with AWS, the network or the credentials do not raise. Sending stops at the first fault, and the
        remaining data are returned as kept. Rejected data do not stop other data. Data that would need too many calls
        to search are kept. Metrics that were refused before are sent last, in separate calls.

        After three sends in a row that CloudWatch answered with 5xx, one datum is sent alone. If it arrives, CloudWatch
        works, and the others have a bad datum: it is searched as if they were rejected. A datum is refused if it failed
        alone in two sends, in which others arrived.
        """
        self._opened_now, self._calls, self._blames_data = False, 0, False
        flush = Flush(self._call)
        clean = [datum for datum in data if datum.key not in self._suspects]
        suspected = [datum for datum in data if datum.key in self._suspects]
        if clean and self._failed_sends >= _FAILURES_BEFORE_A_PROBE:
            flush.settle([clean.pop(self._failed_sends % len(clean))])
            self._blames_data = bool(flush.delivered)
        for some in (clean, suspected):
            for batch in batches(some, self._namespace):
                flush.settle(batch)
            self._blames_data = bool(flush.delivered)
        self._failed_sends = self._failed_sends + 1 if flush.fault is not None and flush.fault.answered else 0
        self._remember(flush)
        if flush.stopped and flush.fault is not None and flush.fault.kind not in _PASSING:
            self.close()  # so the next send reads credentials and configuration files again
        return SendOutcome(tuple(flush.delivered), tuple(flush.refused), tuple(flush.kept), self._calls, flush.fault)

    def close(self) -> None:
        """Close the connections. The next send opens a new client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, data: list[Datum]) -> Verdict | None:
        """Make one request. If the credentials became invalid, make a second request with a new client."""
        verdict = self._attempt(data)
        if isinstance(verdict, Fault) and verdict.kind is FaultKind.CREDENTIALS and not self._opened_now:
            self.close()
            verdict = self._attempt(data)
        if self._blames_data and isinstance(verdict, Fault) and verdict.answered:
            if len(data) > 1 or data[0].key in self._suspects:
                return Rejected(verdict.text)
            self._suspects[data[0].key] = None  # the next send refuses it, if all others arrive before
        return verdict

    def _attempt(self, data: list[Datum]) -> Verdict | None:
        try:
            client = self._opened()
        except Exception as error:  # noqa: BLE001 - boto3 also raises builtin errors about files and configuration
            return classify(error)
        self._pace.wait()
        if not self._may_call():
            return Fault(FaultKind.UNAVAILABLE, "this process does not lead any more")
        self._calls += 1
        try:
            answer = client.put_metric_data(Namespace=self._namespace, MetricData=[datum.wire() for datum in data])
        except Exception as error:  # noqa: BLE001 - credentials are fetched here too, from files, programs and agents
            self._count(status=str(status_of(error) or "error"))
            return classify(error)
        self._count(status=str(answer["ResponseMetadata"]["HTTPStatusCode"]))
        return None

    def _opened(self) -> PutMetricData:
        if self._client is None:
            self._opened_now = True
            self._client = self._open_client()
        return self._client

    def _remember(self, flush: Flush) -> None:
        for datum in flush.delivered:
            self._suspects.pop(datum.key, None)
        self._suspects.update((refusal.datum.key, None) for refusal in flush.refused)
        for key in list(self._suspects)[:-_MOST_SUSPECTS]:
            del self._suspects[key]
