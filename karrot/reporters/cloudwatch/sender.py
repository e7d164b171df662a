"""Send data to CloudWatch in as few calls as its limits allow, and find the bad data of a rejected call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from karrot.reporters.cloudwatch.boto_client import PutMetricData
from karrot.reporters.cloudwatch.datum import Datum, MetricKey, batches
from karrot.reporters.cloudwatch.faults import Fault, FaultKind, Rejected, TooLarge, Verdict, classify, status_of

_CALLS_PER_S = 10.0
_BURST = 10.0
SEARCH_CALLS = 160
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
class Flush:
    """One send, as far as it is: each datum of its batches is delivered, refused or kept.

    ``call`` makes one request; it returns ``None`` if all data arrived. CloudWatch takes all data of a call or none. A
    datum is refused only when CloudWatch rejected it alone, or named it in a call of nothing but named ones: answers
    that count members otherwise than we do cost calls, never a good datum. Halving finds one bad datum among n in at
    most two calls per doubling: 20 among 1,000. With names it takes two.
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
        """Send a batch, and parts of it if CloudWatch rejects it. After a fault all data are kept."""
        self._names_are_true = True
        if self.stopped:
            self.kept += batch
        else:
            self._send(batch)

    def _send(self, data: list[Datum]) -> bool:
        """Send some data, and parts of them if they are rejected; return whether all arrived with one call."""
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
        """Refuse rejected data, or send them in parts: those that the answer names and the others, or two halves."""
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
        """Send both halves. Where one is bad and the first arrived, the second is bad: that needs no call."""
        middle = (len(data) + 1) // 2
        first_arrived = self._send_part(data[:middle])
        second = data[middle:]
        if one_is_bad and first_arrived and len(second) > 1:
            self._halve(second, one_is_bad=True)
        else:
            self._send_part(second)

    def _send_part(self, data: list[Datum]) -> bool:
        """As `_send`, while calls are left to search with; then the next batches are sent all the same."""
        if self.stopped or self._searched >= self.search_calls:
            self.kept += data
            if not self.stopped:
                text = (
                    f"More is rejected than can be looked for in {self.search_calls} calls; lastly: {self._rejection}"
                )
                self.fault = Fault(FaultKind.UNEXPECTED, text)
            return False
        self._searched += 1
        return self._send(data)

    def _named(self, data: list[Datum], verdict: Rejected | TooLarge) -> set[int]:
        if isinstance(verdict, TooLarge) or not self._names_are_true:
            return set()
        return {position for position in verdict.members if 0 <= position < len(data)}


class _Pace:
    """A bucket of calls: so many at once, and so many a second. boto3's own second attempt is not in it."""

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
    """Owns the client: one per process, opened when first needed.

    ``count(status=…)`` counts every call by the HTTP status of its answer, or by ``error`` where none came.
    ``pause`` waits for so many seconds, or less when the service stops; ``monotonic`` is in seconds. For one thread at
    a time, and for the process that sends: a client does not survive a fork.
    """

    def __init__(
        self,
        open_client: Callable[[], PutMetricData],
        namespace: str,
        *,
        count: Callable[..., None],
        pause: Callable[[float], object],
        monotonic: Callable[[], float],
    ) -> None:
        self._open_client = open_client
        self._namespace = namespace
        self._count = count
        self._pace = _Pace(pause, monotonic)
        self._client: PutMetricData | None = None
        self._opened_now = False
        self._calls = 0
        self._suspects: dict[MetricKey, None] = {}

    def send(self, data: Sequence[Datum]) -> SendOutcome:
        """Send the data, of each metric at most one datum.

        Never raises for what AWS, the network or the credentials do: it stops at the first fault and returns the rest
        as kept. Rejected data stop nothing: their neighbours are delivered; what would take too long to find out is
        kept. Metrics that were refused before go last, by themselves.
        """
        self._opened_now, self._calls = False, 0
        flush = Flush(self._call)
        clean = [datum for datum in data if datum.key not in self._suspects]
        suspected = [datum for datum in data if datum.key in self._suspects]
        for some in (clean, suspected):
            for batch in batches(some, self._namespace):
                flush.settle(batch)
        self._remember(flush)
        if flush.stopped and flush.fault is not None and flush.fault.kind not in _PASSING:
            self.close()  # the next send sees credentials and configuration files as they are then
        return SendOutcome(tuple(flush.delivered), tuple(flush.refused), tuple(flush.kept), self._calls, flush.fault)

    def close(self) -> None:
        """Close the connections. Another send opens a new client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, data: list[Datum]) -> Verdict | None:
        """One request; a second one with a new client if credentials that were good once are not any more."""
        verdict = self._attempt(data)
        if isinstance(verdict, Fault) and verdict.kind is FaultKind.CREDENTIALS and not self._opened_now:
            self.close()
            verdict = self._attempt(data)
        return verdict

    def _attempt(self, data: list[Datum]) -> Verdict | None:
        try:
            client = self._opened()
        except Exception as error:  # noqa: BLE001 - boto3 lets builtin errors of files and configuration through
            return classify(error)
        self._pace.wait()
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
