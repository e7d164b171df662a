"""Describe the last send, for the API and the pages: data sent and refused, groups with metrics, the cost."""

from collections.abc import Collection
from itertools import islice

import msgspec

from karrot.reporters.cloudwatch.costs import monthly_estimate
from karrot.reporters.cloudwatch.datum import Datum
from karrot.reporters.cloudwatch.group_cap import OUTSIDE_BOUND, Membership
from karrot.reporters.cloudwatch.options import Options
from karrot.reporters.cloudwatch.sender import BatchRefusal, SendOutcome
from karrot.reporters.send_report import Fact, RefusedDatum, Report, Sent
from karrot.text import counted

_SHOWN = 50


class Ledger:
    """The newest refusal of each metric and the last data that CloudWatch took. Bounded. Not for several threads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._refused: dict[str, RefusedDatum] = {}
        self._sent: tuple[Sent, ...] = ()
        self._clusters: set[str] = set()

    def refused(self, refusal: BatchRefusal, now_ms: int) -> None:
        """Keep a refusal to look at, in place of an older one of that metric: it may come back with every send."""
        what = _what(refusal.datum)
        self._refused.pop(what, None)
        self._refused[what] = RefusedDatum(what, refusal.reason, refusal.text, now_ms)
        if len(self._refused) > _SHOWN:
            del self._refused[next(iter(self._refused))]

    def report(self, outcome: SendOutcome, inside: Membership, clusters: Collection[str], now_ms: int) -> bytes:
        """The note that the pages and the API show after a send."""
        self._clusters |= set(clusters)
        if outcome.delivered:
            self._sent = tuple(map(_sent, islice(outcome.delivered, _SHOWN)))
        return msgspec.json.encode(
            Report(
                at_ms=now_ms,
                sent_count=len(outcome.delivered),
                facts=tuple(self._facts(outcome, inside)),
                sent=self._sent,
                refused=tuple(reversed(self._refused.values())),
            )
        )

    def _facts(self, outcome: SendOutcome, inside: Membership) -> list[Fact]:
        options = self._options
        outside = f"{inside.outside:,}" if inside.outside < OUTSIDE_BOUND else f"{OUTSIDE_BOUND:,} or more"
        estimate = monthly_estimate(
            inside.inside, options.metrics, max(1, len(self._clusters)), options.interval_s, options.layouts
        )
        return [
            Fact("namespace", options.namespace),
            Fact("last send", _told(outcome)),
            Fact("groups with metrics", f"{inside.inside:,} of at most {options.max_groups:,}"),
            Fact("groups left out", outside),
            *(Fact("estimate", sentence) for sentence in estimate.sentences()),
        ]


def _told(outcome: SendOutcome) -> str:
    kept = f"; {len(outcome.kept):,} wait for the next" if outcome.kept else ""
    return f"{len(outcome.delivered):,} data in {counted(outcome.calls, 'call')}{kept}"


def _sent(datum: Datum) -> Sent:
    return Sent(_what(datum), datum.value, datum.unit, datum.timestamp_ms)


def _what(datum: Datum) -> str:
    dimensions = ", ".join(f"{name}={value}" for name, value in datum.dimensions)
    return f"{datum.metric} {{{dimensions}}}" if dimensions else datum.metric
