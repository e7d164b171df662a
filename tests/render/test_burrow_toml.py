"""The rendered notifier section of burrow.toml and its template."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.render import burrow_config, burrow_template, templates_dir, webhook


def notifier(text: str) -> dict[str, Any]:
    section: dict[str, Any] = tomllib.loads(text)["notifier"]["karrot"]
    return section


def test_burrow_gets_a_complete_notifier() -> None:
    assert notifier(burrow_config("http://karrot:5000")) == {
        "class-name": "http",
        "url-open": "http://karrot:5000/burrow",
        "url-close": "http://karrot:5000/burrow",
        "method-open": "POST",
        "method-close": "POST",
        "template-open": "/etc/burrow/karrot.tmpl",
        "template-close": "/etc/burrow/karrot.tmpl",
        "send-close": True,
        "threshold": 1,
        "interval": 30,
        "send-interval": 20,
        "timeout": 5,
        "group-allowlist": ".*",
        "group-denylist": "^.*(console-consumer-|python-kafka-consumer-).*$",
        "headers": {"Idempotency-Key": "1"},
    }


def test_every_line_that_is_not_obvious_has_a_reason() -> None:
    text = burrow_config("http://karrot:5000", "burrow")
    for key in ("send-close", "threshold", "interval", "send-interval", "timeout", "group-denylist", "Idempotency-Key"):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{key} = ")]
        assert "  # " in line, key


def test_a_user_is_rendered_with_a_line_for_the_password() -> None:
    text = burrow_config("http://karrot:5000", "burrow")
    assert notifier(text)["username"] == "burrow"
    assert "password" not in notifier(text)
    assert "BURROW_NOTIFIER_KARROT_PASSWORD" in text
    assert "Bearer" not in text


def test_without_a_user_the_line_for_a_token_is_shown() -> None:
    assert '# Authorization = "Bearer ..."' in burrow_config("http://karrot:5000")


def test_https_shows_the_line_for_a_private_certificate_authority() -> None:
    assert "extra-ca" in burrow_config("https://karrot")
    assert "extra-ca" not in burrow_config("http://karrot")


def test_the_template_file_is_one_line_and_the_text_says_how_to_write_it() -> None:
    assert burrow_template() == '{"Event": {{ jsonencoder . }}}\n'
    assert f"#      echo '{burrow_template().strip()}' > /etc/burrow/karrot.tmpl\n" in burrow_config("http://karrot")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://karrot:5000", "http://karrot:5000/burrow"),
        ("http://karrot:5000/", "http://karrot:5000/burrow"),
        ("http://karrot:5000/burrow", "http://karrot:5000/burrow"),
        ("https://example.org/karrot", "https://example.org/karrot/burrow"),
        ("http://[::1]:5000", "http://[::1]:5000/burrow"),
    ],
)
def test_burrow_posts_to_a_path_below_the_url(url: str, address: str) -> None:
    assert webhook(url) == address


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="an empty address"),
        pytest.param("karrot:5000", id="no scheme"),
        pytest.param("http://karrot/{{.Group}}", id="a template in the path"),
        pytest.param('http://karrot"\nthreshold = 4 #', id="a line break"),
        pytest.param("http://u:hunter2@karrot", id="a password"),
        pytest.param("http://k?x", id="a query"),
    ],
)
def test_a_url_with_extra_parts_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^the address is .*: it must be an http:// or https:// address") as caught:
        burrow_config(url)
    assert "hunter2" not in str(caught.value)


@given(st.text())
def test_any_user_is_written_unchanged_or_refused(user: str) -> None:
    try:
        text = burrow_config("http://karrot", user)
    except ValueError as error:
        assert str(error).startswith("the user is ")  # noqa: PT017 (both outcomes are right)
    else:
        assert notifier(text)["username"] == user


def test_the_templates_exist() -> None:
    assert (templates_dir() / "burrow" / "notifier.toml.j2").is_file()
