"""Asserts the contract of the parser for any bytes: a valid event, or `MalformedPayload`."""

import json
import math
from collections.abc import Callable

from karrot.burrow.payload import MalformedPayload, parse_rest, parse_stored, parse_webhook, to_wire
from karrot.event import LagEvent
from karrot.signals import signals_of

_NOW_MS = 1_746_950_405_000
_LONGEST_SENTENCE = 1_000


def assert_parsed_or_rejected(body: bytes) -> None:
    """Assert an event that is equal after a wire round trip and has finite signals, or a `MalformedPayload`."""
    _check(parse_webhook, body)
    _check(parse_rest, body)


def _check(parse: Callable[..., LagEvent], body: bytes) -> None:
    try:
        event = parse(body, observed_at_ms=_NOW_MS)
    except MalformedPayload as error:
        sentence = str(error).encode()
        assert 0 < len(sentence) <= _LONGEST_SENTENCE
        return
    assert isinstance(json.loads(body, parse_int=str), dict)
    assert parse_stored(to_wire(event), observed_at_ms=_NOW_MS, source=event.source) == event
    assert all(math.isfinite(value) and value >= 0 for value in signals_of(event) if isinstance(value, (int, float)))
