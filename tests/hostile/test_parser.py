"""Any bytes are read or refused, with nothing in between."""

from itertools import islice
from random import Random

import pytest

from support.burrow.malformed_bodies import fuzzer_corpus, malformed_bodies
from support.burrow.parser_contract import assert_parsed_or_rejected

BODIES = 3_000


@pytest.mark.parametrize("body", fuzzer_corpus())
def test_what_a_fuzzer_bred_is_read_or_refused(body: bytes) -> None:
    assert_parsed_or_rejected(body)


def test_random_bodies_are_read_or_refused() -> None:
    for body in islice(malformed_bodies(Random(2)), BODIES):
        assert_parsed_or_rejected(body)
