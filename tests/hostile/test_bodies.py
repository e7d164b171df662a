"""Any posted body gives a plain answer, no traceback, and an exposition that every parser reads."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count, islice
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from karrot.burrow.payload import to_wire
from support.burrow.lag_events import event_strategy
from support.burrow.malformed_bodies import ALLOWED_STATUSES, FRAGMENTS, RECORDED_BODIES, malformed_bodies
from support.service.bulk_posts import assert_metrics_parse, post_all
from support.service.karrot_service import Service

BODIES = pytest.mark.parametrize("bodies", [400, pytest.param(2_000, marks=pytest.mark.deep)])
PARSED_EVERY = 200
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a recorded body with bytes inserted, overwritten or removed."""
    body = bytearray(draw(st.sampled_from(RECORDED_BODIES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 40))] = draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=20))
    return bytes(body)


@st.composite
def replaced(draw: st.DrawFn) -> bytes:
    """Draw a recorded body with one unexpected value that JSON allows."""
    body = draw(st.sampled_from(RECORDED_BODIES))
    value = json.dumps(draw(JSON)).encode() if draw(st.booleans()) else draw(st.sampled_from(FRAGMENTS))
    starts = [place.end() for place in re.finditer(rb'":', body)]
    at = draw(st.sampled_from(starts))
    return body[:at] + value + re.sub(rb'^\s*("[^"]*"|[\w.+-]+)', b"", body[at:])


BODY = (
    mutated() | replaced() | st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
    | event_strategy().map(to_wire)
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("bodies") / "data", partition_metrics="true", topic_metrics="true") as service:
        yield service


@pytest.fixture(scope="module")
def post(service: Service) -> Iterator[Callable[[bytes], int]]:
    connection = HTTPConnection("127.0.0.1", service.port, timeout=20)

    def post_one(body: bytes) -> int:
        connection.request("POST", "/burrow", body)
        response = connection.getresponse()
        response.read()
        return response.status

    yield post_one
    connection.close()


@BODIES
def test_no_changed_body_harms_the_service_or_its_metrics(
    service: Service, post: Callable[[bytes], int], bodies: int
) -> None:
    sent = count(1)
    answers = Counter[int]()

    @settings(
        max_examples=bodies,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(BODY)
    def is_answered(body: bytes) -> None:
        status = post(body)
        answers[status] += 1
        assert status in ALLOWED_STATUSES
        if next(sent) % PARSED_EVERY == 0:
            assert_metrics_parse(service)

    is_answered()
    assert_metrics_parse(service)
    assert answers.total() >= bodies * 0.9
    assert min(answers[202], answers[400]) > bodies // 10
    assert "Traceback" not in service.said.read_text()


@BODIES
def test_no_random_body_harms_the_service_or_its_metrics(service: Service, bodies: int) -> None:
    made = malformed_bodies(Random(3))
    answers = Counter[tuple[int, str]]()
    for _ in range(bodies // PARSED_EVERY):
        answers += post_all(service, islice(made, PARSED_EVERY))
        assert_metrics_parse(service)
    assert {status for status, _ in answers} <= ALLOWED_STATUSES
    assert "Traceback" not in service.said.read_text()
    assert min(answers[202, ""], answers[400, "invalid_field"]) > bodies // 20
