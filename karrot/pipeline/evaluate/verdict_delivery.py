"""Defines what a receiver of verdicts gets, and what it says about them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from karrot.eventlog.base import StoredEvent

KEPT_BYTES: Final = 65_536
"""How much of a refused verdict is kept."""


class ToSend(NamedTuple):
    """A verdict to send. Its ``event_id`` is the same whenever it is sent. The body has Burrow's form."""

    stored: StoredEvent
    is_close: bool

    @property
    def consumer(self) -> str:
        """The name of the group."""
        return self.stored.event.consumer


class RefusedVerdict(msgspec.Struct, frozen=True):
    """A verdict that the ``receiver`` refused because of what it says. ``body`` has at most `KEPT_BYTES`.

    ``key`` is the id of the event. ``code`` is the receiver's, such as ``too_large``.
    """

    key: str
    receiver: str
    consumer: str
    code: str
    body: str

    @classmethod
    def of(cls, sent: ToSend, receiver: str, code: str) -> "RefusedVerdict":
        """A refused verdict, with the beginning of its body."""
        body = sent.stored.body[:KEPT_BYTES].decode("utf-8", "replace")
        return cls(sent.stored.event_id, receiver, sent.consumer, code, body)


class VerdictDelivery(NamedTuple):
    """How many verdicts the receiver took, and those that it refused."""

    taken: int
    refused: Sequence[RefusedVerdict] = ()


class NotAccepted(RuntimeError):  # noqa: N818 (names what happened)
    """A receiver did not take the verdicts of a batch. The message gives the reason without the address."""


Deliver = Callable[[Iterable[ToSend]], VerdictDelivery]
"""Sends the verdicts of a batch. Raises `NotAccepted`. Then the whole batch is sent again later."""


@dataclass(frozen=True, slots=True)
class ToEach:
    """Sends all verdicts to each of several receivers, one after the other."""

    receivers: Sequence[Deliver]

    def __call__(self, several: Iterable[ToSend]) -> VerdictDelivery:
        """Send all. ``several`` is iterated once for each receiver, and ``taken`` is the sum. Raises `NotAccepted`."""
        done = [deliver(several) for deliver in self.receivers]
        return VerdictDelivery(sum(each.taken for each in done), [one for each in done for one in each.refused])


def chunks(several: Iterable[ToSend], most: int) -> Iterator[list[ToSend]]:
    """Yield the verdicts in lists of at most ``most``."""
    left = iter(several)
    while some := [*islice(left, most)]:
        yield some
