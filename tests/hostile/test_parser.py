"""The parser either reads or refuses any bytes, without another error."""

from itertools import count, islice
from random import Random

import pytest

from support.burrow.malformed_bodies import fuzzer_corpus, malformed_bodies
from support.burrow.parser_contract import assert_parsed_or_rejected

BODIES = 3_000


@pytest.mark.parametrize("body", fuzzer_corpus(), ids=map("line {} of fuzzed.base64".format, count(1)))
def test_bodies_that_a_fuzzer_found_are_read_or_refused(body: bytes) -> None:
    assert_parsed_or_rejected(body)


def test_random_bodies_are_read_or_refused() -> None:
    for body in islice(malformed_bodies(Random(2)), BODIES):
        assert_parsed_or_rejected(body)
