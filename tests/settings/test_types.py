"""The types of settings parse texts to values and format values as texts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.settings import types
from karrot.settings.options import OPTIONS, Option
from karrot.settings.types import Address, Secret
from support.prometheus.promtool import promtool

span = types.duration(1, 3650 * 86400)
amount = types.size(1, 2**46)
short = types.timeout(0.1, 60)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300", 300), ("300s", 300), ("5m", 300), ("24h", 86400), ("30d", 2592000), ("1.5h", 5400), ("5 m", 300)],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, seconds: int) -> None:
    assert span.read(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty text"),
        "m",
        "-5m",
        "5 minutes",
        "1h30m",
        "0",
        "1.5",
        pytest.param("9" * 30, id="30 digits"),
        pytest.param("٣s", id="a digit that is not ASCII"),
        "5M",
        "1e3",
    ],
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (its message is not for users)
        span.read(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8MiB", 8 << 20), ("8mib", 8 << 20), ("1 GiB", 1 << 30), ("1048576", 1 << 20), ("512KiB", 1 << 19)],
)
def test_a_size_is_bytes_or_has_a_binary_unit(text: str, size: int) -> None:
    assert amount.read(text) == size


@pytest.mark.parametrize("text", ["8MB", "8M", "1.5GiB", "0", "-1", "MiB", "65TiB"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        amount.read(text)


@given(st.integers(1, 3650 * 86400))
def test_a_shown_duration_can_be_parsed(seconds: int) -> None:
    assert span.read(span.show(seconds)) == seconds


@given(st.integers(1, 2**46))
def test_a_shown_size_can_be_parsed(size: int) -> None:
    assert amount.read(amount.show(size)) == size


@given(st.integers(100, 60_000))
def test_a_shown_timeout_can_be_parsed(milliseconds: int) -> None:
    seconds = short.read(f"{milliseconds}ms")
    assert seconds == pytest.approx(milliseconds / 1000)
    assert short.read(short.show(seconds)) == seconds


@pytest.mark.parametrize("option", [each for each in OPTIONS if not each.is_secret], ids=lambda each: each.name)
@given(text=st.text(max_size=30))
def test_any_text_gives_a_value_or_a_value_error(option: Option, text: str) -> None:
    kind = option.kind
    try:
        value = kind.read(text)
    except ValueError:
        return
    assert kind.read(kind.show(value)) == value


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("0.0.0.0:5000", Address("0.0.0.0", 5000), "0.0.0.0:5000"),
        ("[::]:5000", Address("::", 5000), "[::]:5000"),
        (":8080", Address("0.0.0.0", 8080), "0.0.0.0:8080"),
        ("karrot.local:0", Address("karrot.local", 0), "karrot.local:0"),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address, shown: str) -> None:
    assert types.address.read(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["(", "a{99999999999}", "[[a]"])
def test_an_invalid_or_deprecated_regular_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        types.pattern.read(text)


@pytest.mark.parametrize("text", ["5000", "host", "host:", "host:65536", "::1:5000", "[host]:1", "a b:1", "http://h:1"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        types.address.read(text)


@pytest.mark.parametrize("text", ["http://karrot:5000", "https://k.example/a/b", "http://[::1]:5000"])
def test_a_plain_url_is_accepted_without_its_last_slash(text: str) -> None:
    assert types.url.read(text + "/") == text


@pytest.mark.parametrize(
    "text",
    [
        "karrot:5000",
        "ftp://karrot",
        "http://",
        "http://user:password@karrot",
        "http://karrot/?q=1",
        "http://karrot/#top",
        "http://karrot:99999",
        "http://[::1",
        "http://karrot/{{.Group}}",
        'http://karrot"\nthreshold = 4',
        "http://karrot/\\",
        "http://kärrot",
        "http://a b",
    ],
)
def test_a_url_with_extra_parts_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        types.url.read(text)


def test_a_secret_is_never_shown() -> None:
    secret = Secret("hunter2")
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret == Secret("hunter2") != Secret("hunter3")
    assert hash(secret) == hash(Secret("hunter2"))


def test_a_wrong_value_is_quoted_on_one_short_line_without_a_password() -> None:
    assert types.quoted("a\nb\x1b") == r"'a\nb\x1b'"
    assert types.quoted("postgresql://karrot:p@ss@db/x") == "'postgresql://***@db/x'"
    assert types.quoted("x" * 1000) == f"'{'x' * 80}...'"
    assert types.quoted("^a/(?:b)[?]c") == "'^a/(?***'"  # it could be an address


@pytest.mark.parametrize(
    "text",
    [
        "http://u:s3cret@h/x",
        "http://h/x?token=s3cret",
        "h/x?s3cret",
        "h?token=s3cret",
        "//h/x#s3cret",
        "http://h/x?a@b#s3cret",
    ],
)
def test_no_error_has_the_user_the_query_or_the_fragment_of_an_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--karrot is '.*\*\*\*.*': it must be an http://") as raised:
        types.checked(types.url, "--karrot", text)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("query", ["password=s3cret", "sslpassword=s3cret", "sslmode=require&PASSWORD=s3cret"])
def test_a_database_url_with_a_password_in_its_query_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match="without a password") as raised:
        types.checked(types.event_log, "KARROT_EVENT_LOG", f"postgresql://u@h/d?{query}")
    assert "s3cret" not in str(raised.value)


def test_an_error_has_the_wrong_value_and_the_allowed_values() -> None:
    with pytest.raises(ValueError, match=r"^--speed is 'fast': it must be a whole number from 1 to 9$"):
        types.checked(types.whole(1, 9), "--speed", "fast")


def test_a_path_may_start_at_home() -> None:
    assert types.path.read("~/karrot") == Path.home() / "karrot"


REFUSED = (
    *("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?(1)b|c)", "(?#x)a", "(?x)a b", "(?a)a", "(?P<ä>x)"),
    *(r"(a)\1", "(?P<x>a)(?P=x)", "a*+", "a++", "a?+", "a{2}+", "a{2,3}+", "a{1001}", "a{0,1001}", "a{,3}"),
    *("(?:a{500}){3}", "((a{11}|b){10}){11}", "(?:[)]{500}x{2}){3}"),
    *(r"a\Z", r"\u00e4", r"\U000000e4", r"\N{DIGIT ONE}", r"\ä", r"[\b]", r"[\1]", r"[\u0041]", r"[]\]a\b00]"),
)
ACCEPTED = (
    *(
        "",
        "^orders-",
        "a|b$",
        "(a|b)+?",
        "a*?",
        "a{2}?",
        "a{3,}",
        "(?:a{500}){2}a{500}{",
        "(a{9}|b{99}){9}[(]{999}",
        "(?i)a",
        "(?s-i:a)",
        "(?P<a1>x)",
        "ä",
        "[(?=]",
    ),
    *(
        r"[*+]+",
        r"[\]]+",
        "[]a]",
        "[^]a]",
        r"\\1",
        r"\-\.\/\ \_",
        r"\Aa\b\B",
        r"\x41\07\a\f\n\r\t\v",
        r"[\w-]\d\S",
        "\\\n",
    ),
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_pattern_that_prometheus_cannot_read_or_reads_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="that Prometheus"):
        types.checked(types.shared_pattern, "the pattern", text)


def test_prometheus_reads_each_pattern_that_is_accepted(tmp_path: Path) -> None:
    for text in ACCEPTED:
        assert types.checked(types.shared_pattern, "the pattern", text).pattern == text
    rules = [{"record": "a:b", "expr": f"up{{x=~{json.dumps(text)}}}"} for text in ACCEPTED]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", tmp_path / "rules.yml")
