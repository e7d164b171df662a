from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.server.request_completeness import HEAD_LIMIT, ArrivingRequest, RequestHead

HEADERS = b"POST /burrow?x=1 HTTP/1.1\r\nHost: karrot\r\nAuthorization: Basic abc\r\nContent-Length: 5\r\n\r\n"


def fed(*pieces: bytes) -> ArrivingRequest:
    arriving = ArrivingRequest()
    for piece in pieces:
        arriving.feed(piece)
    return arriving


def test_headers_give_the_length_of_the_body() -> None:
    assert fed(HEADERS).head == RequestHead("POST", "/burrow", 5, "Basic abc", waits_for_continue=False)


def test_a_body_is_complete_when_its_length_has_arrived() -> None:
    assert not fed(HEADERS, b"1234").body_is_whole
    assert fed(HEADERS, b"12345").body_is_whole
    assert fed(HEADERS, b"12345GET / HTTP/1.1").body_is_whole


def test_a_body_that_ends_the_received_data_has_nothing_after_it() -> None:
    assert fed(HEADERS, b"12345").nothing_follows
    assert not fed(HEADERS, b"1234").nothing_follows
    assert not fed(HEADERS, b"12345G").nothing_follows
    assert not fed(b"POST /burrow HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").nothing_follows


@pytest.mark.parametrize(
    "target", ["/burrow", "/burrow/", "//burrow", "/%62urrow", "http://karrot:5000/burrow", "https://k/burrow?x=1"]
)
def test_a_path_is_read_in_every_notation(target: str) -> None:
    head = fed(f"POST {target} HTTP/1.1\r\n\r\n".encode()).head
    assert head is not None
    assert head.path == "/burrow"


def test_a_client_gets_the_answer_100_only_once() -> None:
    arriving = fed(HEADERS[:-2] + b"Expect: 100-continue\r\n\r\n123")
    assert arriving.head is not None
    assert arriving.head.waits_for_continue
    arriving.go_on()
    arriving.feed(b"45")
    assert arriving.take() == HEADERS + b"12345"
    assert arriving.body_is_whole


def test_a_request_without_a_length_has_no_body_to_wait_for() -> None:
    arriving = fed(b"GET / HTTP/1.1\r\nHost: karrot\r\n\r\n")
    assert arriving.head == RequestHead("GET", "/", None, "", waits_for_continue=False)
    assert arriving.body_is_whole


def test_an_invalid_length_is_left_to_the_parser() -> None:
    for length in (b"-1", b"+5", b"5, 5", b"0x10", b"9" * 40, "٣".encode()):
        head = fed(b"POST /burrow HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % length).head
        assert head is not None
        assert head.length is None


def test_endless_headers_are_detected() -> None:
    assert not fed(b"x" * HEAD_LIMIT).head_is_endless
    assert fed(b"x" * HEAD_LIMIT, b"x").head_is_endless


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)))
def test_the_result_does_not_depend_on_how_the_bytes_are_split(data: bytes, cuts: list[int]) -> None:
    whole = HEADERS + data
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    one, many = fed(whole), fed(*pieces)
    assert (one.head, one.body_is_whole, one.take()) == (many.head, many.body_is_whole, many.take())


@given(st.binary())
def test_any_received_bytes_are_kept_unchanged(data: bytes) -> None:
    assert fed(data).take() == data


@given(st.binary())
def test_any_bytes_as_headers_cause_no_error(data: bytes) -> None:
    assert fed(data, b"\r\n\r\n").head is not None
