"""Provides the filters of the HTML templates: they format numbers, times, names and code on pages and in the report."""

from collections.abc import Callable
from typing import Any, TypeVar

from markupsafe import Markup, escape

from karrot import text

NOT_KNOWN = Markup('<span class="quiet" title="not known">–</span>')  # noqa: RUF001 (a typesetter's empty cell)

T = TypeVar("T")


def dash_if_unknown(words: Callable[[T], str]) -> Callable[[T | None], str]:
    """Make a filter that formats like ``words`` and shows a dash for ``None``. A zero would be a wrong value."""
    return lambda value: NOT_KNOWN if value is None else words(value)


def marked(sentence: str) -> Markup:
    """Convert a sentence to HTML, with the text between backticks shown as code."""
    parts = enumerate(sentence.split("`"))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in parts)


FILTERS: dict[str, Callable[..., Any]] = {
    "amount": text.amount,
    "clock": text.clock,
    "count": dash_if_unknown(text.count),
    "duration": dash_if_unknown(text.duration),
    "marked": marked,
    "moment": dash_if_unknown(text.moment),
    "percent": dash_if_unknown(text.percent),
    "rate": dash_if_unknown(text.rate),
    "shell_word": text.shell_word,
    "short_count": text.short_count,
    "some": text.some,
    "visible": text.visible,
}
"""The filters by the names that the templates use."""
