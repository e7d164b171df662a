from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.data import Encoded, dimension_value, metric_name
from support.reporters.cloudwatch_datum import NOW_MS, decoded, decoded_metric, make_datum, would_be_refused

ANY_NAME = st.text(st.characters(codec="utf-8"), max_size=40)
LONG_NAME = st.builds(lambda text, times, end: text * times + end, ANY_NAME.filter(bool), st.integers(1, 120), ANY_NAME)
MARKED_NAME = st.builds(
    lambda count, digits: "x" * count + "~" + digits, st.integers(240, 1030), st.text("0123456789abcdef", max_size=9)
)
NAME = ANY_NAME | LONG_NAME | MARKED_NAME | st.sampled_from(["", " ", "(empty)", "%28empty)", "%", "%25"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders-svc", "orders-svc"),
        ('a b/c:d"e\\f~', 'a b/c:d"e\\f~'),
        (" orders ", " orders "),
        ("grüppe", "gr%C3%BCppe"),
        ("\N{CARROT}", "%F0%9F%A5%95"),
        ("a\tb\x7f", "a%09b%7F"),
        pytest.param("", "(empty)", id="an empty name"),
        ("(empty)", "%28%65%6D%70%74%79%29"),
        ("((empty))", "((empty))"),
        pytest.param("  ", "%20%20", id="only spaces"),
        pytest.param("\t ", "%09%20", id="a tab and a space"),
    ],
)
def test_a_name_becomes_printable_ascii(name: str, text: str) -> None:
    assert dimension_value(name) == metric_name(name) == Encoded(text, cut=False)


@pytest.mark.parametrize("name", ["100%", "a%41", "%", "50%-off %zz", pytest.param("x" * 255, id="255 letters")])
def test_a_metric_that_the_first_karrot_could_send_has_the_same_name(name: str) -> None:
    assert metric_name(name) == Encoded(name, cut=False)


def test_a_percent_sign_is_encoded_in_a_dimension_and_in_an_ambiguous_metric_name() -> None:
    assert dimension_value("100%").text == "100%25"
    assert metric_name("gr%C3%BCppe").text == "gr%25C3%25BCppe"


@pytest.mark.parametrize(("encode", "limit"), [(dimension_value, 1024), (metric_name, 255)])
def test_a_name_that_is_too_long_is_cut_and_ends_in_its_hash(encode: Callable[[str], Encoded], limit: int) -> None:
    assert encode("x" * limit) == Encoded("x" * limit, cut=False)
    longer, other = encode("x" * (limit + 1)), encode("x" * limit + "y")
    assert longer.cut
    assert len(longer.text) == limit
    assert longer.text[: limit - 9] == "x" * (limit - 9)
    assert longer.text != other.text


def test_the_hash_is_the_start_of_the_sha_256_of_the_whole_name() -> None:
    assert metric_name("x" * 256).text == "x" * 246 + "~85e62acd"


def test_a_cut_does_not_split_an_escape() -> None:
    for shift in range(3):
        text = metric_name("x" * shift + "%" * 300).text
        assert set(text[shift:-9].split("%25")) == {""}


def test_a_name_that_looks_like_a_cut_one_differs_from_the_longer_one() -> None:
    cut = metric_name("x" * 300)
    forged = metric_name(cut.text)
    assert forged.cut
    assert forged.text != cut.text


def test_a_lone_surrogate_can_be_encoded() -> None:
    assert decoded(dimension_value("a\ud800").text) == "a\ud800"


@given(NAME)
def test_a_name_that_was_not_cut_can_be_decoded(name: str) -> None:
    dimension, metric = dimension_value(name), metric_name(name)
    assert dimension.cut or decoded(dimension.text) == name
    assert metric.cut or decoded_metric(metric.text) == name


@given(ANY_NAME)
def test_no_short_name_is_cut(name: str) -> None:
    assert not dimension_value(name).cut


@given(NAME, NAME)
def test_two_names_are_never_encoded_the_same(one: str, other: str) -> None:
    for encode in (dimension_value, metric_name):
        assert (one == other) == (encode(one).text == encode(other).text)


@given(NAME)
def test_a_changed_name_changes_again_when_it_is_encoded_again(name: str) -> None:
    for encode in (dimension_value, metric_name):
        text = encode(name).text
        assert (text == name) == (encode(text).text == text)


@given(NAME)
def test_cloudwatch_accepts_every_encoded_name(name: str) -> None:
    value = dimension_value(name).text
    datum = make_datum(metric=metric_name(name).text, dimensions=(("Cluster", value), ("ConsumerGroup", value)))
    assert would_be_refused([datum], NOW_MS) == []
