"""Data to CloudWatch: in as few calls as the limits allow, and no bad datum in the way of the good ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from karrot.reporters.cloudwatch.bisect_batch import Search
from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.datum import Datum, MetricKey, batches
from karrot.reporters.cloudwatch.faults import Fault, FaultKind, Rejected, TooLarge, Verdict, classify, status_of

__all__ = ["BatchRefusal", "SendOutcome", "Sender"]

_CALLS_PER_S = 10.0
_BURST = 10.0
_SEARCH_CALLS = 160
"""Calls of one `Sender.send` that look for rejected data: enough for ten that no answer names among 1,000."""
_MOST_SUSPECTS = 1000
_PASSING = (FaultKind.UNAVAILABLE, FaultKind.THROTTLED)
"""Faults that a new client would not mend."""


@dataclass(frozen=True, slots=True)
class BatchRefusal:
    """A datum that CloudWatch does not take. ``reason`` is stable: ``rejected`` or ``too_large``."""

    datum: Datum
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of the data of one `Sender.send`: each is in one of the three tuples.

    ``kept`` still owes a send; some of it may have arrived, when an answer got lost on its way. ``fault`` is why.
    """

    delivered: tuple[Datum, ...]
    refused: tuple[BatchRefusal, ...]
    kept: tuple[Datum, ...]
    calls: int
    fault: Fault | None


@dataclass(slots=True)
class _Flush:
    """One send, as far as it is."""

    delivered: list[Datum] = field(default_factory=list)
    refused: list[BatchRefusal] = field(default_factory=list)
    kept: list[Datum] = field(default_factory=list)
    calls: int = 0
    searched: int = 0
    rejection: str = ""
    fault: Fault | None = None
    stopped: bool = False

    def stop(self, fault: Fault) -> None:
        self.fault, self.stopped = fault, True

    def may_search(self) -> bool:
        """Whether to go on looking for rejected data; where not, the next batches are sent all the same."""
        self.searched += 1
        if self.searched > _SEARCH_CALLS:
            text = f"More is rejected than can be looked for in {_SEARCH_CALLS} calls; lastly: {self.rejection}"
            self.fault = Fault(FaultKind.UNEXPECTED, text)
        return self.searched <= _SEARCH_CALLS

    def refuse(self, data: list[Datum], verdict: Rejected | TooLarge) -> None:
        reason = "too_large" if isinstance(verdict, TooLarge) else "rejected"
        self.refused += [BatchRefusal(datum, reason, verdict.text) for datum in data]

    def outcome(self) -> SendOutcome:
        return SendOutcome(tuple(self.delivered), tuple(self.refused), tuple(self.kept), self.calls, self.fault)


class _Pace:
    """A bucket of calls: so many at once, and so many a second. boto3's own second attempt is not in it."""

    def __init__(self, pause: Callable[[float], None], monotonic: Callable[[], float]) -> None:
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
    """Owns the client: one per process, opened when first needed.

    ``count(status=…)`` is told of every call by the HTTP status of its answer, or ``error`` where none came.
    ``pause`` waits for so many seconds, or less when the service stops; ``monotonic`` is in seconds. For one thread at
    a time, and for the process that sends: a client does not survive a fork.
    """

    def __init__(
        self,
        open_client: Callable[[], PutMetricData],
        namespace: str,
        *,
        count: Callable[..., None],
        pause: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._open_client = open_client
        self._namespace = namespace
        self._count = count
        self._pace = _Pace(pause, monotonic)
        self._client: PutMetricData | None = None
        self._opened_now = False
        self._suspects: dict[MetricKey, None] = {}

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send the data, of each metric at most one datum.

        Never raises for what AWS, the network or the credentials do: it stops at the first fault and returns the rest
        as kept. Rejected data stop nothing: their neighbours are delivered; what would take too long to find out is
        kept. Metrics that were refused before go last, by themselves.
        """
        self._opened_now = False
        flush = _Flush()
        clean = [datum for datum in data if datum.key not in self._suspects]
        suspected = [datum for datum in data if datum.key in self._suspects]
        for some in (clean, suspected):
            for batch in batches(some, self._namespace):
                if flush.stopped:
                    flush.kept += batch
                else:
                    self._settle(batch, flush)
        self._remember(flush)
        if flush.stopped and flush.fault is not None and flush.fault.kind not in _PASSING:
            self.close()  # the next send sees credentials and configuration files as they are then
        return flush.outcome()

    def close(self) -> None:
        """Close the connections. Another send opens a new client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _settle(self, batch: list[Datum], flush: "_Flush") -> None:
        """Find out for each datum of a batch what becomes of it."""
        search = Search(batch)
        while part := search.part():
            if len(part) < len(batch) and not flush.may_search():
                break
            verdict = self._call(part, flush)
            if verdict is None:
                flush.delivered += part
                search.delivered()
            elif isinstance(verdict, Fault):
                flush.stop(verdict)
                break
            else:
                flush.rejection = verdict.text
                if search.rejected(verdict):
                    flush.refuse(part, verdict)
        flush.kept += search.unsettled()

    def _call(self, data: list[Datum], flush: "_Flush") -> Verdict | None:
        """One request; a second one with a new client if credentials that were good once are not any more."""
        verdict = self._attempt(data, flush)
        if isinstance(verdict, Fault) and verdict.kind is FaultKind.CREDENTIALS and not self._opened_now:
            self.close()
            verdict = self._attempt(data, flush)
        return verdict

    def _attempt(self, data: list[Datum], flush: "_Flush") -> Verdict | None:
        try:
            client = self._opened()
        except Exception as error:  # noqa: BLE001 - boto3 lets builtin errors of files and configuration through
            return classify(error)
        self._pace.wait()
        flush.calls += 1
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

    def _remember(self, flush: "_Flush") -> None:
        for datum in flush.delivered:
            self._suspects.pop(datum.key, None)
        self._suspects.update((refusal.datum.key, None) for refusal in flush.refused)
        for key in list(self._suspects)[:-_MOST_SUSPECTS]:
            del self._suspects[key]
