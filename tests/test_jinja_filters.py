from datetime import UTC, datetime

import jinja2
import pytest

from karrot.jinja_filters import FILTERS, marked


@pytest.mark.parametrize("name", ["count", "duration", "rate", "percent", "moment"])
def test_an_unknown_value_is_a_dash_with_an_explanation(name: str) -> None:
    assert str(FILTERS[name](None)) == '<span class="quiet" title="not known">–</span>'  # noqa: RUF001


def test_a_known_value_is_shown_and_escaped() -> None:
    environment = jinja2.Environment(autoescape=True)
    environment.filters.update(FILTERS)
    page = environment.from_string("{{ 0 | count }} {{ none | duration }} {{ at | moment }} {{ '<b>' | visible }}")
    assert page.render(at=datetime(2026, 11, 21, 16, 4, 5, tzinfo=UTC)) == (
        '0 <span class="quiet" title="not known">–</span> 2026-11-21 16:04:05 UTC &lt;b&gt;'  # noqa: RUF001
    )


def test_text_between_backticks_is_code_and_no_text_is_markup() -> None:
    assert marked("`path` names <it>; `a<b`.") == "<code>path</code> names &lt;it&gt;; <code>a&lt;b</code>."
