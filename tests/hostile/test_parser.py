"""Any bytes are read or refused, with nothing in between."""

from itertools import islice
from random import Random

import pytest

from support.burrow.malformed_bodies import bodies, fuzzed
from support.burrow.parser_contract import assert_read_or_refused

BODIES = 3_000


@pytest.mark.parametrize("body", fuzzed())
def test_what_a_fuzzer_bred_is_read_or_refused(body: bytes) -> None:
    assert_read_or_refused(body)


def test_random_bodies_are_read_or_refused() -> None:
    for body in islice(bodies(Random(2)), BODIES):
        assert_read_or_refused(body)
