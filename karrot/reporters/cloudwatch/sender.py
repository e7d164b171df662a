"""Sends data to CloudWatch in as few calls as CloudWatch's limits allow, and finds the bad data of a failed call."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from karrot.aws.classify_errors import ABOUT_THE_DATA, Fault, FaultKind, fault_of
from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.data import Datum, batches

_BURST, _CALLS_PER_S = 10, 10.0
"""A send makes ten calls without a pause, and all later calls at ten per second."""

_PARTS = 4
SEARCH_CALLS = 160
"""The most calls of a send that search for bad data: enough for ten bad data among 1,000."""

_PASSING = (FaultKind.UNAVAILABLE, FaultKind.THROTTLED)
"""Faults that a new client would not solve."""


class Refusal(NamedTuple):
    """A datum that Karrot will never send. ``reason`` is a stable code."""

    datum: Datum
    reason: str
    text: str


@dataclass(slots=True)
class SendOutcome:
    """The result of a send. After a ``fault``, the data that are neither delivered nor refused must be sent again."""

    delivered: list[Datum] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    calls: int = 0
    fault: Fault | None = None


class Sender:
    """Sends data with its own boto3 client, which the first call opens.

    ``count(status=…)`` counts every call by the HTTP status of the answer, or ``error`` without an answer.
    ``pause(seconds)`` waits, but ends early when the service stops. ``monotonic()`` returns seconds. ``may_call()`` is
    called before each request, because a process that was frozen must not repeat its successor's sends. Only one thread
    may use a sender at a time. Use a sender only in one process, because a client does not survive a fork.
    """

    def __init__(
        self,
        open_client: Callable[[], PutMetricData],
        namespace: str,
        *,
        count: Callable[..., None],
        pause: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        may_call: Callable[[], bool] = lambda: True,
    ) -> None:
        self._open_client, self._namespace = open_client, namespace
        self._count, self._pause, self._monotonic, self._may_call = count, pause, monotonic, may_call
        self._client: PutMetricData | None = None
        self._began_s = 0.0

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send the data. The first problem with AWS, the network or the credentials ends the send as ``fault``.

        CloudWatch accepts all data of a call, or no datum. The data of a rejected call are sent again in parts. A datum
        is refused if CloudWatch rejected a call with this datum alone, or if the search for it takes too many calls.
        """
        outcome, self._began_s, searched = SendOutcome(), self._monotonic(), 0
        queue = deque[tuple[list[Datum], Fault | None]]((batch, None) for batch in batches(data, self._namespace))
        while queue and outcome.fault is None:
            part, cause = queue.popleft()
            is_over = cause is not None and searched >= SEARCH_CALLS
            searched += cause is not None
            fault = cause if is_over else self._call(part, outcome)
            if fault is None:
                outcome.delivered += part
            elif fault.kind not in ABOUT_THE_DATA:
                outcome.fault = fault
            elif is_over or len(part) == 1:
                text = f"not tried again after {SEARCH_CALLS} calls for rejected data: " if is_over else ""
                outcome.refused += [Refusal(datum, fault.kind, text + fault.text) for datum in part]
            else:
                size = ceil(len(part) / _PARTS)
                queue.extendleft((part[at : at + size], fault) for at in reversed(range(0, len(part), size)))
        if outcome.fault is not None and outcome.fault.kind not in _PASSING:
            self.close()  # the next send reads credentials and configuration files again
        return outcome

    def close(self) -> None:
        """Close the connections. The next send opens a new client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, data: list[Datum], outcome: SendOutcome) -> Fault | None:
        """Make one request. If the credentials became invalid, make a second request with a new client."""
        was_open = self._client is not None
        fault = self._attempt(data, outcome)
        if fault is not None and fault.kind is FaultKind.CREDENTIALS and was_open:
            self.close()
            fault = self._attempt(data, outcome)
        return fault

    def _attempt(self, data: list[Datum], outcome: SendOutcome) -> Fault | None:
        try:
            client = self._client = self._client or self._open_client()
        except Exception as error:  # noqa: BLE001 - boto3 also raises builtin errors about files and configuration
            return fault_of(error)
        early_s = self._began_s + (outcome.calls + 1 - _BURST) / _CALLS_PER_S - self._monotonic()
        if early_s > 0:
            self._pause(early_s)
        if not self._may_call():
            return Fault(FaultKind.UNAVAILABLE, "this process does not lead any more")
        outcome.calls += 1
        try:
            answer = client.put_metric_data(Namespace=self._namespace, MetricData=[datum.wire() for datum in data])
        except Exception as error:  # noqa: BLE001 - credentials are fetched here too, from files, programs and agents
            fault = fault_of(error)
            self._count(status=str(fault.status or "error"))
            return fault
        self._count(status=str(answer["ResponseMetadata"]["HTTPStatusCode"]))
        return None
