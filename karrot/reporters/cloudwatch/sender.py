"""Sends data to CloudWatch in as few calls as CloudWatch's limits allow. Finds the bad data of a rejected call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from karrot.aws.errors import ABOUT_THE_DATA, Fault, FaultKind, fault_of
from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, batches

_BURST, _CALLS_PER_S = 10, 10.0
"""A send makes ten calls without a pause, and then ten per second."""

_PARTS = 4
SEARCH_CALLS = 160
"""The most further calls of a send for rejected data: enough for ten bad data among 1,000, even if none is named."""

_PASSING = (FaultKind.UNAVAILABLE, FaultKind.THROTTLED)
"""Faults that a new client would not solve."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A datum that is not sent, and never will be. ``reason`` is stable."""

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
    searched: int = field(default=0, compare=False)


class Sender:
    """Sends data with its own boto3 client. Each process has one client, which is opened when it is first needed.

    ``count(status=…)`` counts every call by the HTTP status of its answer, or with ``error`` if there was no answer.
    ``pause(seconds)`` waits, or waits a shorter time when the service stops. ``monotonic()`` returns seconds.
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
        self._pause, self._monotonic = pause, monotonic
        self._began_s = 0.0
        self._may_call = may_call
        self._client: PutMetricData | None = None

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send the data. Problems with AWS, the network or the credentials do not raise: sending stops at the first."""
        outcome, self._began_s = SendOutcome(), self._monotonic()
        for batch in batches(data, self._namespace):
            outcome.fault = self._settle(batch, outcome)
            if outcome.fault is not None:
                break
        if outcome.fault is not None and outcome.fault.kind not in _PASSING:
            self.close()  # so the next send reads credentials and configuration files again
        return outcome

    def close(self) -> None:
        """Close the connections. The next send opens a new client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _settle(self, data: list[Datum], outcome: SendOutcome, *, trusts: bool = True) -> Fault | None:
        """Deliver or refuse each datum. If CloudWatch rejects the call, which took none of them, send them in parts.

        A datum is refused if it was rejected alone, or if the answer named every datum of the call. So an answer with
        wrong positions (then ``trusts`` becomes false) costs calls, but never a good datum. After too many calls, the
        rest is refused untried.
        """
        fault = self._call(data, outcome)
        if fault is None:
            outcome.delivered += data
            return None
        if fault.kind not in ABOUT_THE_DATA:
            return fault
        members = {at for at in fault.members if 0 <= at < len(data)}
        if len(data) in {1, len(members)}:
            outcome.refused += [Refusal(datum, fault.kind, fault.text) for datum in data]
            return None
        named = [data[at] for at in sorted(members)] if trusts else []
        unnamed = [datum for at, datum in enumerate(data) if at not in members]
        size = ceil(len(data) / _PARTS)
        for part in [named, unnamed] if named else [data[at : at + size] for at in range(0, len(data), size)]:
            if outcome.searched >= SEARCH_CALLS:
                text = f"not tried again after {SEARCH_CALLS} calls for rejected data: {fault.text}"
                outcome.refused += [Refusal(datum, fault.kind, text) for datum in part]
                continue
            outcome.searched += 1
            before = len(outcome.refused)
            stopped = self._settle(part, outcome, trusts=trusts)
            if stopped is not None:
                return stopped
            trusts = trusts and (part is not named or len(outcome.refused) > before)
        return None

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
