"""Whatever is posted: a plain answer, no traceback, and an exposition that every parser reads."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from karrot.burrow.payload import to_wire
from support.bodies import event_strategy, expected, recorded
from support.processes import Service

BODIES = 2_000
PARSED_EVERY = 400
ANSWERS = {202, 400, 413, 415, 503}
WHOLE = [recorded(name) for name in sorted(expected())]
PIECES = [
    *(b'"\\ud800"', b'"\\u0000"', b'"\\u2028\\r\\n"', b"18446744073709551615", b"18446744073709551616", b"-1"),
    *(b"1e400", b"NaN", b"-Infinity", b"9" * 5_000, b"[" * 100_000, b'{"a":' * 2_000, b'""', b"null", b"{}", b"\xff"),
    *(b'"' + b"n" * 65_536 + b'"', b'{"Event": }', b'"Status":"ERR",', b"\x00", b"\xef\xbb\xbf", b'"\\"', b"//"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A body that Burrow sent, with pieces put in, put over or taken out."""
    body = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 40))] = draw(st.sampled_from(PIECES) | st.binary(max_size=20))
    return bytes(body)


@st.composite
def replaced(draw: st.DrawFn) -> bytes:
    """A body that Burrow sent, with one value that JSON allows and nobody expects."""
    body = draw(st.sampled_from(WHOLE))
    value = json.dumps(draw(JSON)).encode() if draw(st.booleans()) else draw(st.sampled_from(PIECES))
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


def assert_metrics_parse(service: Service) -> None:
    plain = service.get("/metrics", {"Accept": "text/plain"}).body.decode()
    assert len(list(text_string_to_metric_families(plain))) > 20
    answer = service.get("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(answer.body.decode())  # type: ignore[no-untyped-call]
    assert len(list(families)) > 20


def test_no_body_harms_the_service_or_its_metrics(service: Service, post: Callable[[bytes], int]) -> None:
    sent = count(1)
    answers = Counter[int]()

    @settings(
        max_examples=BODIES,
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
        assert status in ANSWERS
        if next(sent) % PARSED_EVERY == 0:
            assert_metrics_parse(service)

    is_answered()
    assert_metrics_parse(service)
    assert answers.total() >= BODIES * 0.9
    assert min(answers[202], answers[400]) > BODIES // 10
    assert "Traceback" not in service.said.read_text()
    assert service.post(WHOLE[0]).status in {202, 400}
