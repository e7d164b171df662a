"""The client reads recorded, unusual and broken answers from a server that sends given bytes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.client import (
    Burrow,
    ClusterModule,
    NotFound,
    NotifierModule,
    UnknownCall,
)
from karrot.event import Status
from karrot.http_client import Limits, RequestFailed, Unavailable, Unreadable
from support.examples import examples
from support.servers.scripted_server import Script, http_response, scripted_server

REAL = Path(__file__).parents[2] / "data" / "burrow" / "real"
LIMITS = Limits(timeout_s=5, pause=lambda _: None)
CLUSTERS = (
    b'{"error":false,"message":"cluster list returned","clusters":["b","a"],"request":{"url":"/v3/kafka","host":"vm"}}'
)
NOT_FOUND = (
    b'{"error":false,"message":"consumer status returned","status":{"cluster":"c","group":"g","status":"NOTFOUND",'
    b'"complete":1,"partitions":[],"partition_count":0,"maxlag":null,"totallag":0},'
    b'"request":{"url":"/v3/kafka/c/consumer/g/lag","host":"vm"}}'
)
HEAD = b"HTTP/1.1 200 OK\r\n"
REST = CLUSTERS[5:] + b"\r\n0\r\n\r\n"


def clusters(*scripts: Script, limits: Limits = LIMITS) -> tuple[str, ...]:
    with scripted_server(*scripts) as (url, _), Burrow(url, limits) as burrow:
        return burrow.clusters()


# As recorded


@pytest.mark.parametrize(
    ("name", "status", "total"),
    [pytest.param("warn", Status.WARN, 536, id="a group in WARN"), pytest.param("2", Status.OK, 0, id="a group in OK")],
)
def test_recorded_answers_are_understood(name: str, status: Status, total: int) -> None:
    lag, bad = (REAL / f"rest-{call}-{name}.json" for call in ("lag", "status"))
    with (
        scripted_server(http_response(lag.read_bytes()), http_response(bad.read_bytes())) as (url, asked),
        Burrow(url) as burrow,
    ):
        whole = burrow.lag("stack", "skewed-consumer-group")
        short = burrow.status("stack", "skewed-consumer-group")
    assert (whole.status, whole.total_lag, whole.partition_count) == (status, total, 3)
    assert [one.partition for one in whole.partitions] == [0, 1, 2]
    assert short.partitions == tuple(one for one in whole.partitions if one.status is not Status.OK)
    assert asked[0].startswith(b"GET /v3/kafka/stack/consumer/skewed-consumer-group/lag HTTP/1.1\r\n")


# Answers of some releases, or about some groups


def test_json_with_a_plain_text_content_type_is_read() -> None:
    assert clusters(http_response(CLUSTERS, headers=b"Content-Type: text/plain; charset=utf-8\r\n")) == ("a", "b")


def test_a_null_list_is_read_as_empty() -> None:
    assert clusters(http_response(b'{"error":false,"message":"","clusters":null}')) == ()


def test_a_not_found_verdict_is_not_an_event_though_its_error_is_false() -> None:
    with (
        scripted_server(http_response(NOT_FOUND, "404 Not Found")) as (url, _),
        Burrow(url) as burrow,
        pytest.raises(NotFound),
    ):
        burrow.lag("c", "g")


def test_partitions_in_random_order_are_sorted() -> None:
    recorded = json.loads((REAL / "rest-lag-warn.json").read_bytes())
    recorded["status"]["partitions"].reverse()
    with scripted_server(http_response(json.dumps(recorded).encode())) as (url, _), Burrow(url) as burrow:
        assert [one.partition for one in burrow.lag("stack", "skewed-consumer-group").partitions] == [0, 1, 2]


def test_a_missing_call_of_an_old_burrow_does_not_mean_a_missing_group() -> None:
    body = b'{"error":true,"message":"invalid request type","result":{}}\n'
    with scripted_server(*[http_response(body, "404 Not Found")] * 2) as (url, _), Burrow(url) as burrow:
        assert burrow.ready() is None
        with pytest.raises(UnknownCall):
            burrow.consumers("c")


def test_the_whitelist_of_old_releases_keeps_its_name() -> None:
    body = b'{"error":false,"message":"","module":{"class-name":"http","group-whitelist":"^a","threshold":2}}'
    with scripted_server(http_response(body)) as (url, _), Burrow(url) as burrow:
        notifier = burrow.module(NotifierModule, "notifier", "n")
    assert (notifier.group_whitelist, notifier.group_allowlist, notifier.threshold) == ("^a", None, 2)


def test_an_evaluation_that_burrow_cannot_encode_is_reported_as_an_error_of_burrow() -> None:
    body = b'{"error":true,"message":"could not encode JSON","result":{}}'
    with (
        scripted_server(http_response(body, "500 Internal Server Error")) as (url, _),
        Burrow(url) as burrow,
        pytest.raises(Unavailable, match="HTTP 500, 'could not encode JSON'"),
    ):
        burrow.lag("c", "g")


# Broken


@pytest.mark.parametrize(
    "script",
    [
        [HEAD + b"\r\n" + CLUSTERS],
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + CLUSTERS[:5], b"\r\n%x\r\n" % len(CLUSTERS[5:]), REST],
    ],
    ids=["no length", "chunks"],
)
def test_an_answer_is_read_whole_for_every_way_to_mark_its_end(script: Script) -> None:
    assert clusters(script) == ("a", "b")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([], "Remote end closed connection without response"),
        ([HEAD + b"Content-Length: 500\r\n\r\n" + CLUSTERS], "IncompleteRead"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n500\r\n" + CLUSTERS], "IncompleteRead"),
        ([b"SSH-2.0-OpenSSH\r\n"], "SSH-2.0-OpenSSH"),
    ],
    ids=["nothing", "cut", "cut chunk", "not HTTP"],
)
def test_a_truncated_answer_is_requested_again_and_then_fails(script: Script, said: str) -> None:
    assert clusters(script, script, http_response(CLUSTERS)) == ("a", "b")
    with pytest.raises(Unavailable, match=f"/v3/kafka: the connection broke: .*{said}"):
        clusters(script, script, script)


def test_a_silent_server_is_asked_once() -> None:
    with (
        scripted_server([b""], http_response(CLUSTERS)) as (url, asked),
        Burrow(url, Limits(timeout_s=0.1)) as burrow,
        pytest.raises(Unavailable, match=r"no answer within 0\.1 s"),
    ):
        burrow.clusters()
    assert len(asked) == 1


def test_a_slow_answer_ends_at_the_total_timeout() -> None:
    at = iter(range(100))
    drip = [HEAD + b"Content-Length: 9999\r\n\r\n", *[b"x"] * 3, b""]
    with pytest.raises(Unavailable, match=r"not complete after 0\.5 s"):
        clusters(drip, limits=Limits(timeout_s=0.5, monotonic=lambda: float(next(at))))


def test_an_answer_over_the_largest_size_is_refused() -> None:
    with pytest.raises(Unreadable, match="larger than 50 bytes"):
        clusters(http_response(CLUSTERS), limits=Limits(max_bytes=50))


def test_a_refused_connection_is_reported() -> None:
    with scripted_server() as (url, _):
        pass
    pauses: list[float] = []
    with Burrow(url, Limits(pause=pauses.append)) as burrow, pytest.raises(Unavailable) as caught:
        burrow.clusters()
    assert str(caught.value) == f"{url}/v3/kafka: no connection: Connection refused"
    assert pauses == [0.1, 0.2]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (http_response(b"{}"), "the answer is not Burrow's: .* missing required field `clusters`"),
        (http_response(b"<html>"), "the answer is not Burrow's: The body is not JSON"),
        (
            http_response(b'{"clusters":' + b"[" * 100_000),
            "the answer is not Burrow's: The JSON has more than 32 levels",
        ),
        (http_response(b"[" * 100_000, "404 Not Found"), "HTTP 404, which is not an answer of Burrow"),
        (http_response(b'{"clusters":[1]}'), r"The field \$.clusters\[0\] is wrong"),
        (http_response(b"<html>", "404 Not Found"), "HTTP 404, which is not an answer of Burrow: '<html>'"),
        (http_response(b"", "401 Unauthorized"), "HTTP 401"),
        (http_response(b"", "302 Found", b"Location: https://x/y\r\n"), "a redirect to 'https://x/y'"),
        (http_response(b"\x1b[2J\xff", "404 Not Found"), r"Burrow: '\\x1b\[2J\\ufffd'"),
    ],
    ids=[
        "an object without clusters",
        "a page of HTML",
        "JSON with too many levels",
        "404 with JSON of too many levels",
        "a cluster that is a number",
        "404 with a page of HTML",
        "401",
        "a redirect",
        "404 with control characters",
    ],
)
def test_an_answer_of_another_server_is_refused_with_its_reason(script: Script, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        clusters(script)


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable"])
def test_a_gateway_without_burrow_is_unavailable(status: str) -> None:
    with pytest.raises(Unavailable, match=f"HTTP {status[:3]}"):
        clusters(http_response(b"<html>no upstream</html>", status))
    with (
        scripted_server(http_response(b"<html>", status)) as (url, _),
        Burrow(url) as burrow,
        pytest.raises(Unavailable),
    ):
        burrow.ready()


def test_an_answer_about_another_group_is_refused() -> None:
    other = (
        b'{"status":{"cluster":"prod","group":"oth\\u001ber","status":"OK","complete":1,"partitions":[],"totallag":0}}'
    )
    with scripted_server(http_response(other), http_response(other)) as (url, _), Burrow(url) as burrow:
        with pytest.raises(Unreadable, match=r"the answer is about 'oth\\x1ber' in 'prod'"):
            burrow.status("prod", "mine")
        assert burrow.lag("prod", "oth\x1ber").consumer == "oth\x1ber"


def test_an_error_that_comes_with_200_is_an_error() -> None:
    with pytest.raises(RequestFailed, match="Burrow says 'storage is on fire'"):
        clusters(http_response(b'{"error":true,"message":"storage is on fire"}'))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "clusters", "topics", "offsets", "consumers", "status", "module", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@examples(150)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), st.sampled_from([200, 404, 500]))
def test_any_answer_is_either_read_or_raises_one_of_our_errors(body: bytes, status: int) -> None:
    script = http_response(body, f"{status} Whatever")
    with scripted_server(*[script] * 9) as (url, _), Burrow(url) as burrow:
        for question in (
            burrow.clusters,
            lambda: burrow.topics("c"),
            lambda: burrow.lag("c", "g"),
            lambda: burrow.module(ClusterModule, "cluster", "c"),
            burrow.config_main,
            lambda: burrow.module(NotifierModule, "notifier", "n"),
            burrow.ready,
        ):
            said = error_of(question)
            assert said == "" or (said.startswith(url) and said.isprintable())


def error_of(question: Callable[[], object]) -> str:
    try:
        question()
    except RequestFailed as error:
        return str(error)
    return ""
